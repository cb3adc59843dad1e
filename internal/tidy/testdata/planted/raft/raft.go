// Package raft breaks each rule of a pure room once, and once the right way
// stands beside it.
package raft

import (
	"fmt"
	"maps"
	"slices"
	"sync" // want imports
)

// Log has an order of its own and may be walked.
type Log []string

// Peers is a map behind a name.
type Peers map[int]string

func keep(in <-chan int, peers Peers, log Log) { // want pure
	var mu sync.Mutex
	mu.Lock()
	go fmt.Println("later") // want pure
	select {                // want pure
	case n := <-in: // want pure
		fmt.Println(n)
	default:
	}
	for id := range peers { // want pure
		fmt.Println(id)
	}
	for id := range maps.Keys(peers) { // want pure
		fmt.Println(id)
	}
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		fmt.Println(id)
	}
	for _, line := range log {
		fmt.Println(line) // divergence D-1, which the page has, and D-3 // want divergences
	}
}
