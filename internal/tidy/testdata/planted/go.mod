module raftkv

go 1.26

require (
	github.com/gofrs/flock v0.13.2 // indirect; want dependencies
	github.com/spf13/cobra v1.10.2 // want dependencies
	github.com/spf13/pflag v1.0.9 // want dependencies
)
