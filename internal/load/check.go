package load

import (
	"context"
	"fmt"
	"strings"

	"raftkv/kvclient"
)

// tokensPerKey bounds how long the value of one key grows.
const tokensPerKey = 500

// token is one append of a run with Check: the n-th of a client.
type token struct {
	run       string
	client, n int
	outcome   Outcome
}

func (t token) key() string  { return fmt.Sprintf("check-%s-%d.%d", t.run, t.client, t.n/tokensPerKey) }
func (t token) text() string { return fmt.Sprintf("%d;", t.n) }

// check reads back what was appended. A client appends its tokens one after
// another, so they stand in their order; one whose outcome is unknown may stand
// there or not.
func (r *run) check(ctx context.Context, client *kvclient.KVClient) error {
	byKey := map[string][]token{}
	var keys []string
	for _, t := range r.tokens {
		if byKey[t.key()] == nil {
			keys = append(keys, t.key())
		}
		byKey[t.key()] = append(byKey[t.key()], t)
	}
	for _, key := range keys {
		callCtx, cancel := context.WithTimeout(ctx, r.config.CallTimeout)
		got, err := client.Get(callCtx, key)
		cancel()
		if err != nil {
			return fmt.Errorf("the check cannot read %s: %w", key, err)
		}
		if err := compare(key, byKey[key], got.Value); err != nil {
			return err
		}
	}
	return nil
}

// compare says what is wrong with the value that tokens have made.
func compare(key string, tokens []token, value string) error {
	rest := value
	for _, t := range tokens {
		after, found := strings.CutPrefix(rest, t.text())
		switch {
		case found && t.outcome == NotApplied:
			return fmt.Errorf("%s holds token %d, which was said not to be applied", key, t.n)
		case found:
			rest = after
		case t.outcome == Applied:
			return fmt.Errorf("%s lacks token %d, which was acknowledged, or holds another before it: …%.40q", key, t.n, rest)
		}
	}
	if rest != "" {
		return fmt.Errorf("%s holds something twice, or out of order: …%.40q", key, rest)
	}
	return nil
}
