package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"raftkv/internal/zoo"
)

func main() {
	log.SetFlags(0)
	check := flag.Bool("check", false, "only compare, and exit 1 if a file is not as it would be made")
	flag.Parse()
	root, err := zoo.Root(".")
	if err != nil {
		log.Fatal(err)
	}
	made, err := generate(root)
	if err != nil {
		log.Fatal(err)
	}
	stale := staleFiles(root, made)
	for _, name := range stale {
		if *check {
			fmt.Printf("%s is stale: run make gen\n", name)
			continue
		}
		if err := write(filepath.Join(root, filepath.FromSlash(name)), made[name]); err != nil {
			log.Fatal(err)
		}
		fmt.Println(name)
	}
	if *check && len(stale) > 0 {
		os.Exit(1)
	}
}

// generate returns all that is made, by path from root. A nil text means that the
// file must not be there.
func generate(root string) (map[string][]byte, error) {
	made := map[string][]byte{}
	if err := makeFigures(root, made); err != nil {
		return nil, err
	}
	if err := makeDiffs(root, made); err != nil {
		return nil, err
	}
	// What was made once and is made no longer.
	for _, pattern := range []string{"docs/figures/*.svg", "docs/diffs/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			name, err := filepath.Rel(root, file)
			if err != nil {
				return nil, err
			}
			if name = filepath.ToSlash(name); made[name] == nil {
				made[name] = nil
			}
		}
	}
	return made, nil
}

// staleFiles returns the names of those that are not on the disk as they were made.
func staleFiles(root string, made map[string][]byte) []string {
	var stale []string
	for _, name := range slices.Sorted(maps.Keys(made)) {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil || made[name] == nil || !bytes.Equal(text, made[name]) {
			stale = append(stale, name)
		}
	}
	return stale
}

func write(file string, text []byte) error {
	if text == nil {
		return os.Remove(file)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
