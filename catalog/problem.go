package catalog

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/sie-engine/sie/internal/files"
)

const (
	maxProblemsPerFile = 32  // then "and N more"
	maxProblems        = 200 // of a whole directory
	maxQuoted          = 80  // bytes of a user's value repeated in a message
)

// Problem is one error in a file. Key is the dotted path of the wrong key, or "" when the problem
// concerns the whole file. Line counts from 1.
type Problem struct {
	File string
	Line int
	Key  string
	Msg  string
}

func (p Problem) Error() string {
	if p.Key == "" {
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Msg)
	}
	return fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, p.Key, p.Msg)
}

// Problems is the error of a failed load. It prints one problem a line, ordered by file name and
// line. More counts the problems that the bounds leave out of List.
type Problems struct {
	List []Problem
	More int
}

func (e *Problems) Error() string {
	var b strings.Builder
	for i, p := range e.List {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.Error())
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\nand %d more", e.More)
	}
	return b.String()
}

// problemList collects the problems of one file.
type problemList struct {
	file string
	list []Problem
	more int
}

func (l *problemList) add(line int, key, format string, args ...any) {
	if len(l.list) >= maxProblemsPerFile {
		l.more++
		return
	}
	l.list = append(l.list,
		Problem{File: l.file, Line: max(line, 1), Key: key, Msg: fmt.Sprintf(format, args...)})
}

// err returns nil, or a *Problems ordered by line.
func (l *problemList) err() error {
	if len(l.list) == 0 {
		return nil
	}
	sort.SliceStable(l.list, func(i, j int) bool { return l.list[i].Line < l.list[j].Line })
	return &Problems{List: l.list, More: l.more}
}

// merge appends the problems of one file to those of a directory.
func (e *Problems) merge(err error) {
	var p *Problems
	if !errors.As(err, &p) {
		if err != nil {
			e.List = append(e.List, Problem{Line: 1, Msg: err.Error()})
		}
		return
	}
	room := max(maxProblems-len(e.List), 0)
	take := min(room, len(p.List))
	e.List = append(e.List, p.List[:take]...)
	e.More += p.More + len(p.List) - take
}

// joinKey extends a key path. A key that is not a plain word is quoted in brackets.
func joinKey(path, key string) string {
	plain := key != ""
	for _, c := range key {
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			plain = false
			break
		}
	}
	switch {
	case !plain || len(key) > maxQuoted:
		return path + fmt.Sprintf("[%q]", clip(key))
	case path == "":
		return key
	}
	return path + "." + key
}

// clip shortens a user's value for a message.
func clip(s string) string { return files.Clip(s, maxQuoted) }
