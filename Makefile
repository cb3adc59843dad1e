# `make check` before each commit, about a minute. The stages are those of CI;
# .ci/run says what each one does.

.PHONY: check test long fuzz gen

check:
	.ci/run gofmt vet tidy race builds

test:
	go test ./...

# What CI runs, with more seeds.
long:
	SEEDS=20000 .ci/run

# Every fuzz target for a million runs.
fuzz:
	RUNS=1000000 .ci/run fuzz

# What is generated: figures, quoted code and diffs in docs/, and in docs/figure2.md
# the lines that turn red.
gen:
	go run ./internal/docgen
	go test -count=1 -run TestBreaks ./internal/scenario -breaks all -update
