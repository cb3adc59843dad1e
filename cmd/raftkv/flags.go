package main

import (
	"context"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftkv/kvclient"
)

// The demo's servers, so that everything works with it without a flag.
const defaultEndpoints = "http://127.0.0.1:8080,http://127.0.0.1:8081,http://127.0.0.1:8082"

const endpointsEnv = "RAFTKV_ENDPOINTS"

const (
	defaultTimeout     = 10 * time.Second
	defaultSessionFile = ".raftkv-session"
	noSessionFile      = "none"
)

// clientFlags are the flags of the commands that talk to a cluster.
type clientFlags struct {
	endpoints string
	timeout   time.Duration
	format    string
	session   string
}

// addTo gives cmd the flags that every such command has.
func (f *clientFlags) addTo(cmd *cobra.Command) {
	defaults := os.Getenv(endpointsEnv)
	if defaults == "" {
		defaults = defaultEndpoints
	}
	cmd.Flags().StringVar(&f.endpoints, "endpoints", defaults, "HTTP addresses of the servers, separated by commas; also "+endpointsEnv)
	cmd.Flags().DurationVar(&f.timeout, "timeout", defaultTimeout, "how long to try")
	f.addFormat(cmd)
}

func (f *clientFlags) addFormat(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.format, "write-out", "w", formatSimple, "form of the output: simple, table or json")
}

// addSession gives cmd the flag of the commands that write.
func (f *clientFlags) addSession(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.session, "session", defaultSessionFile, "the session file; \""+noSessionFile+"\" writes without protection")
}

// check reports the first flag whose value makes no sense.
func (f *clientFlags) check() error {
	for _, e := range f.list() {
		address := e
		if !strings.Contains(address, "://") {
			address = "http://" + address
		}
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.Scheme != "http" || u.Path != "" && u.Path != "/" {
			return refused("%q is no endpoint; give HTTP addresses such as http://127.0.0.1:8080, separated by commas", e)
		}
	}
	if len(f.list()) == 0 {
		return refused("no endpoint is given; use --endpoints or %s", endpointsEnv)
	}
	if f.timeout <= 0 {
		return refused("--timeout %v leaves no time; give more than 0", f.timeout)
	}
	return f.checkFormat()
}

func (f *clientFlags) checkFormat() error {
	switch f.format {
	case formatSimple, formatTable, formatJSON:
		return nil
	}
	return refused("-w %q is no form of output; use simple, table or json", f.format)
}

func (f *clientFlags) list() []string {
	return strings.FieldsFunc(f.endpoints, func(r rune) bool { return r == ',' || r == ' ' })
}

// connect returns a client, and a context for one call.
func (f *clientFlags) connect(ctx context.Context) (c *kvclient.KVClient, callCtx context.Context, done func(), err error) {
	if err := f.check(); err != nil {
		return nil, nil, nil, err
	}
	c = kvclient.New(f.list())
	callCtx, cancel := context.WithTimeout(ctx, f.timeout)
	return c, callCtx, func() {
		cancel()
		c.Close()
	}, nil
}
