package main

import (
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// serveProfiles lets go tool pprof ask the process where its time and memory go,
// at http://ADDR/debug/pprof/, until the listener is closed or the process ends. A
// profile tells what a server does, and taking one slows it down, so the address
// must be one of loopback.
func serveProfiles(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, refused("--pprof %q is no address: %v; give 127.0.0.1:6060", address, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, refused("--pprof %q is not an address of loopback; give 127.0.0.1:6060, and a tunnel to ask from elsewhere", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, refused("cannot listen for profiles: %v", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go server.Serve(listener) // an error would only end the profiles
	return listener, nil
}
