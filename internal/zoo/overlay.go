package zoo

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Apply returns the sources that the bug changes, by path relative to root. The
// lines of each hunk must stand in exactly one place of today's file: a bug that
// fits nowhere would prove nothing, one that fits twice might be another bug.
func (b Bug) Apply(root string) (map[string]string, error) {
	changed := map[string]string{}
	for _, h := range b.Hunks {
		text, ok := changed[h.File]
		if !ok {
			bytes, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(h.File)))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", b.Name, err)
			}
			text = string(bytes)
		}
		if n := strings.Count("\n"+text, "\n"+h.Before); h.Before == "" || n != 1 {
			return nil, fmt.Errorf("%s: %s has %d places like this, and must have one:\n%s", b.Name, h.File, n, h.Before)
		}
		changed[h.File] = strings.Replace("\n"+text, "\n"+h.Before, "\n"+h.After, 1)[1:]
	}
	return changed, nil
}

// WriteOverlay puts the changed sources and the list that go build's -overlay
// wants into dir, and returns the path of the list.
func (b Bug) WriteOverlay(root, dir string) (string, error) {
	changed, err := b.Apply(root)
	if err != nil {
		return "", err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range changed {
		copied := filepath.Join(dir, strings.ReplaceAll(file, "/", "+"))
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(root, filepath.FromSlash(file))] = copied
	}
	data, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, data, 0o644)
}
