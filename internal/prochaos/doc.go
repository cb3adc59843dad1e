// Package prochaos harms a cluster of real processes and checks what its
// clients were told.
//
// The simulator finds more, and repeats what it finds. What it cannot see is
// everything below it: the sockets, the files of the operating system, the
// signals, the start of a process. So here the servers are processes of
// `raftkv serve` on loopback, killed with SIGKILL, stopped with SIGSTOP and
// restarted; a proxy in this process stands before every port and cuts, delays
// and reorders; clients are those of package kvclient.
//
//	prochaos.go  Config, Report and Run
//	process.go   one server as a process
//	proxy.go     what stands between the servers, and before their clients
//	clients.go   the load, and the verdict on what it saw
//
// A run cannot be repeated exactly, because the machine takes part in it. The
// seed repeats the faults.
package prochaos
