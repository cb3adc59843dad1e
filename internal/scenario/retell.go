package scenario

import (
	"errors"
	"fmt"
	"strings"

	"raftkv/internal/core"
	"raftkv/internal/invariant"
)

// Retell plays statements to servers made by newCore until an invariant is
// broken, and leaves out those that would do nothing where they stand: a timer
// that does not run, a link that carries nothing. head is the opening comment
// with the story's config, and the statements that must be there. Retell returns
// what it has played, and the *invariant.Violation that ended it; nil if none did.
//
// It is for programs that write stories. A story that people write must mean
// every line.
func Retell(newCore core.New, head string, statements []string) (played []string, broken *invariant.Violation, err error) {
	p := newParser("retold")
	n := 0
	for line := range strings.Lines(head) {
		n++
		if err := p.parseLine(n, strings.TrimSpace(line)); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
		}
	}
	w := newWorld(newCore, p.story.config, false)
	for _, st := range p.story.statements {
		if err := w.perform(st); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", st.text, err)
		}
	}
	for _, text := range statements {
		p.story.statements = nil
		if err := p.parseLine(n, text); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", text, err)
		}
		for _, st := range p.story.statements {
			switch err := w.perform(st); {
			case errors.As(err, &broken):
				return append(played, text), broken, nil
			case err == nil:
				played = append(played, text)
			}
		}
	}
	return played, nil, nil
}
