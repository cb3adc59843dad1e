// Command peers is in a module of its own, which may import what it likes.
package main

import "example.com/raft"

func main() { raft.Run() }
