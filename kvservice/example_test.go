package kvservice_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"raftkv/kvclient"
	"raftkv/kvservice"
	"raftkv/raft"
)

// A program that carries a one-server store inside it. With three programs on
// three machines, each has its own ID and all have the same three Members.
func ExampleStart() {
	dir, err := os.MkdirTemp("", "raftkv-example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	node, err := kvservice.Start(kvservice.NodeConfig{
		ID:       1,
		Data:     dir,
		HTTPAddr: "127.0.0.1:0",
		RaftAddr: "127.0.0.1:0",
		Members:  map[raft.ServerID]string{1: "127.0.0.1:0"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Stop()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client := kvclient.New([]string{node.HTTPAddr()})
	defer client.Close()
	if _, err := client.Put(ctx, "greeting", "hello"); err != nil {
		fmt.Println(err)
		return
	}
	appended, err := client.Append(ctx, "greeting", ", world")
	if err != nil {
		fmt.Println(err)
		return
	}
	got, err := client.Get(ctx, "greeting")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("was %q, is %q, version %d\n", appended.PrevValue, got.Value, got.Version)
	// Output: was "hello", is "hello, world", version 2
}
