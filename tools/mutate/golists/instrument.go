package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// selector is added to the package: it reads the number of the mutant that runs.
const selector = `package %s

import (
	"os"
	"strconv"
)

var sieMutant, _ = strconv.Atoi(os.Getenv("SIE_MUTANT"))

func siePick[T any](number int, changed, unchanged T) T {
	if sieMutant == number {
		return changed
	}
	return unchanged
}
`

// edit replaces the text between two offsets.
type edit struct {
	from, to int
	text     string
}

func apply(text string, edits []edit) string {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(b.from, a.from) })
	for _, e := range edits {
		text = text[:e.from] + e.text + text[e.to:]
	}
	return text
}

// source is one file of the package.
type source struct {
	name, text string
	set        *token.FileSet
	file       *ast.File
}

func readSource(folder, name string) (*source, error) {
	data, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		return nil, err
	}
	s := &source{name: name, text: string(data), set: token.NewFileSet()}
	s.file, err = parser.ParseFile(s.set, name, data, parser.SkipObjectResolution)
	return s, err
}

func (s *source) offset(p token.Pos) int { return s.set.Position(p).Offset }

func (s *source) of(n ast.Node) string { return s.text[s.offset(n.Pos()):s.offset(n.End())] }

// find returns the function, or the variable, of that name.
func (s *source) find(name string) (*ast.FuncDecl, *ast.ValueSpec) {
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			own := d.Name.Name
			if d.Recv != nil {
				own = strings.TrimPrefix(s.of(d.Recv.List[0].Type), "*") + "." + own
			}
			if own == name {
				return d, nil
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if ok && d.Tok == token.VAR && len(v.Names) == 1 && len(v.Values) == 1 &&
					v.Names[0].Name == name {
					return nil, v
				}
			}
		}
	}
	return nil, nil
}

// changed returns text with the mutant in it. Spaces and line ends count as alike.
func (m *mutant) changed(text string) (string, error) {
	words := strings.Fields(m.old)
	for i := range words {
		words[i] = regexp.QuoteMeta(words[i])
	}
	at := regexp.MustCompile(strings.Join(words, `\s+`)).FindAllStringIndex(text, -1)
	if len(at) != 1 {
		return "", fmt.Errorf("%s:%d: %s: the text occurs %d times in the declaration; once is wanted",
			m.list, m.line, m.id(), len(at))
	}
	return text[:at[0][0]] + m.new + text[at[0][1]:], nil
}

// instrument returns the file with all mutants in it, each behind its number. A function calls its
// changed copy at its begin; a variable is one of its values.
func (s *source) instrument(mutants map[int]*mutant) (string, error) {
	var edits []edit
	var copies strings.Builder
	byDecl := map[string][]int{}
	for n, m := range mutants {
		byDecl[m.decl] = append(byDecl[m.decl], n)
	}
	for decl, numbers := range byDecl {
		slices.Sort(numbers)
		f, v := s.find(decl)
		switch {
		case f != nil:
			e, err := s.function(f, numbers, mutants, &copies)
			if err != nil {
				return "", err
			}
			edits = append(edits, e...)
		case v != nil:
			old := s.of(v.Values[0])
			value := old
			for _, n := range numbers {
				text, err := mutants[n].changed(old)
				if err != nil {
					return "", err
				}
				value = fmt.Sprintf("siePick(%d, %s, %s)", n, text, value)
			}
			edits = append(edits, edit{s.offset(v.Values[0].Pos()), s.offset(v.Values[0].End()), value})
		default:
			m := mutants[numbers[0]]
			return "", fmt.Errorf("%s:%d: %s has no function or variable %s", m.list, m.line, m.file, decl)
		}
	}
	return apply(s.text, edits) + copies.String(), nil
}

// function returns the edits that make f call its changed copies, and writes these.
func (s *source) function(
	f *ast.FuncDecl, numbers []int, mutants map[int]*mutant, copies *strings.Builder,
) ([]edit, error) {
	edits, arguments, call := []edit(nil), []string(nil), ""
	named := func(field *ast.Field) []string { // gives parameters without a name one
		var names []string
		for _, n := range field.Names {
			name := n.Name
			if name == "_" {
				name = fmt.Sprintf("sieUnused%d", s.offset(n.Pos()))
				edits = append(edits, edit{s.offset(n.Pos()), s.offset(n.End()), name})
			}
			names = append(names, name)
		}
		if names == nil {
			at := s.offset(field.Pos())
			names = []string{fmt.Sprintf("sieUnused%d", at)}
			edits = append(edits, edit{at, at, names[0] + " "})
		}
		return names
	}
	if f.Recv != nil {
		call = named(f.Recv.List[0])[0] + "."
	}
	for _, field := range f.Type.Params.List {
		names := named(field)
		if _, variadic := field.Type.(*ast.Ellipsis); variadic {
			names[0] += "..."
		}
		arguments = append(arguments, names...)
	}
	cases := ""
	for _, n := range numbers {
		begin := s.offset(f.Pos())
		text, err := mutants[n].changed(s.text[begin:s.offset(f.End())])
		if err != nil {
			return nil, err
		}
		own := fmt.Sprintf("%sMutant%d", f.Name.Name, n)
		head, rest, _ := strings.Cut(text, " "+f.Name.Name+"(")
		fmt.Fprintf(copies, "\n%s %s(%s\n", head, own, rest)
		c := fmt.Sprintf("%s%s(%s)", call, own, strings.Join(arguments, ", "))
		if f.Type.Results != nil {
			c = "return " + c
		} else {
			c += "; return"
		}
		cases += fmt.Sprintf(" case %d: %s;", n, c)
	}
	at := s.offset(f.Body.Lbrace) + 1
	return append(edits, edit{at, at, " switch sieMutant {" + cases + " };"}), nil
}
