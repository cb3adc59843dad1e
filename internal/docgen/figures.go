package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"raftkv/raft"
)

const (
	figuresFile = "docs/chapters/figures.txt"
	maxArrows   = 12 // a figure makes one point
)

// figure is one entry of docs/chapters/figures.txt, which describes them all.
type figure struct {
	name    string
	caption string // what to see in it
	story   string // the file in testdata/scenarios
	first   int    // the lines of the story that are shown
	last    int
	servers []string // the columns, from left to right; a letter is a client
	hidden  map[string]bool
	skipped map[int]bool // lines that happen and are not shown
	logs    bool         // show what the logs hold where they change
	stop    int          // end when so many messages have arrived or are lost; 0: at the end
	rounds  bool         // say of heartbeats and of answers which round they belong to
	landed  bool         // leave out what is still in flight at the end
	calls   []call
	says    []say
}

// call is an arrow between a client and a server, which the story does not have.
type call struct {
	line     int // of the story at which it is drawn
	after    bool
	from, to string
	text     string
	lost     bool
}

// say is a note about a server that the story does not make: the point, perhaps.
type say struct {
	line   int // of the story, after which it stands
	server string
	text   string
}

// readFigures reads docs/chapters/figures.txt. A figure begins with its name;
// the lines below it begin with a blank, a word and what the word is about:
//
//	one-vote
//	  caption One vote in a term.
//	  story   one-vote.txt 7-16      the file and the lines that are shown
//	  columns A 1 2 3                a letter is a client
//	  hide    2->3 3->2@12 *         messages between these are left out; only those
//	                                 sent in line 12; all
//	  skip    9 10                   lines that happen and are not shown
//	  logs                           show the logs where they change
//	  rounds                         say to which round a message belongs
//	  stop    7                      end when 7 messages have arrived or are lost
//	  landed                         leave out what is in flight at the end
//	  call    9 A->1 put x foo       at line 9 client A asks server 1
//	  call    9+ 1->A ok             after what line 9 does; -x-> if it is lost
//	  say     13 2 still leads       a note about server 2 after line 13
func readFigures(root string) ([]figure, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(figuresFile)))
	if err != nil {
		return nil, err
	}
	var all []figure
	for n, line := range strings.Split(string(text), "\n") {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "" || strings.HasPrefix(word, "#"):
		case !strings.HasPrefix(line, " "):
			all = append(all, figure{name: word, hidden: map[string]bool{}, skipped: map[int]bool{}})
		case len(all) == 0:
			err = fmt.Errorf("no figure has begun")
		default:
			err = all[len(all)-1].set(word, strings.TrimSpace(rest))
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", figuresFile, n+1, err)
		}
	}
	return all, nil
}

var (
	storyForm = regexp.MustCompile(`^(\S+) (\d+)-(\d+)$`)
	sayForm   = regexp.MustCompile(`^(\d+) ([A-Z1-9]) (.+)$`)
	callForm  = regexp.MustCompile(`^(\d+)(\+?) ([A-Z1-9])-(x-)?>([A-Z1-9]) (.+)$`)
)

func (f *figure) set(word, rest string) error {
	switch word {
	case "caption":
		f.caption = strings.TrimSpace(f.caption + " " + rest)
	case "story":
		m := storyForm.FindStringSubmatch(rest)
		if m == nil {
			return fmt.Errorf("a story is file.txt FIRST-LAST, not %q", rest)
		}
		f.story = m[1]
		f.first, _ = strconv.Atoi(m[2])
		f.last, _ = strconv.Atoi(m[3])
	case "columns":
		f.servers = strings.Fields(rest)
	case "hide":
		for _, link := range strings.Fields(rest) {
			f.hidden[link] = true
		}
	case "skip":
		for _, word := range strings.Fields(rest) {
			line, err := strconv.Atoi(word)
			if err != nil {
				return err
			}
			f.skipped[line] = true
		}
	case "logs":
		f.logs = true
	case "stop":
		n, err := strconv.Atoi(rest)
		f.stop = n
		return err
	case "rounds":
		f.rounds = true
	case "landed":
		f.landed = true
	case "call":
		m := callForm.FindStringSubmatch(rest)
		if m == nil {
			return fmt.Errorf("a call is LINE[+] A->1 TEXT, not %q", rest)
		}
		line, _ := strconv.Atoi(m[1])
		f.calls = append(f.calls, call{line, m[2] != "", m[3], m[5], m[6], m[4] != ""})
	case "say":
		m := sayForm.FindStringSubmatch(rest)
		if m == nil {
			return fmt.Errorf("a note is LINE SERVER TEXT, not %q", rest)
		}
		line, _ := strconv.Atoi(m[1])
		f.says = append(f.says, say{line, m[2], m[3]})
	default:
		return fmt.Errorf("no word %q; there are caption story columns hide skip logs rounds stop landed call say", word)
	}
	return nil
}

// hides reports whether messages of a link that are sent in a line are left out.
func (f *figure) hides(from, to raft.ServerID, line int) bool {
	link := fmt.Sprintf("%d->%d", from, to)
	return f.hidden["*"] || f.hidden[link] || f.hidden[fmt.Sprintf("%s@%d", link, line)]
}

func (f *figure) column(name string) int { return slices.Index(f.servers, name) }

// makeFigures draws the figures and puts them, with their captions, where pages
// of docs/ ask for them:
//
//	<!-- figure one-vote -->
//	<!-- end -->
func makeFigures(root string, made map[string][]byte) error {
	figures, err := readFigures(root)
	if err != nil {
		return err
	}
	byName := map[string]figure{}
	for _, f := range figures {
		d, err := f.draw(root)
		if err != nil {
			return fmt.Errorf("figure %s: %w", f.name, err)
		}
		byName[f.name] = f
		made["docs/figures/"+f.name+".svg"] = d.svg()
	}
	used := map[string]bool{}
	pages, err := pagesOf(root)
	if err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
		if err != nil {
			return err
		}
		filled, err := fillIn(string(text), page, byName, used)
		if err == nil {
			filled, err = fillInCode(root, filled, page)
		}
		if err != nil {
			return err
		}
		if filled != string(text) {
			made[page] = []byte(filled)
		}
	}
	for name := range byName {
		if !used[name] {
			return fmt.Errorf("no page shows figure %s", name)
		}
	}
	return nil
}

var place = regexp.MustCompile(`(?s)<!-- figure (\S+) -->\n.*?<!-- end -->`)

// fillIn returns the text of a page with its figures in their places.
func fillIn(text, page string, figures map[string]figure, used map[string]bool) (string, error) {
	var err error
	filled := place.ReplaceAllStringFunc(text, func(old string) string {
		name := place.FindStringSubmatch(old)[1]
		f, ok := figures[name]
		if !ok {
			err = fmt.Errorf("%s: %s has no figure %s", page, figuresFile, name)
			return old
		}
		used[name] = true
		up := strings.Repeat("../", strings.Count(page, "/")-1)
		return fmt.Sprintf("<!-- figure %s -->\n![%s](%sfigures/%s.svg)\n\n*%s ([%s](%s../testdata/scenarios/%s))*\n<!-- end -->",
			name, f.caption, up, name, f.caption, f.story, up, f.story)
	})
	return filled, err
}

// pagesOf returns the pages that may show figures and code, by path from root.
func pagesOf(root string) ([]string, error) {
	var pages []string
	for _, pattern := range []string{"docs/*.md", "docs/chapters/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			name, err := filepath.Rel(root, file)
			if err != nil {
				return nil, err
			}
			pages = append(pages, filepath.ToSlash(name))
		}
	}
	return pages, nil
}
