package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licenceFile is the name of a file that says what one may do with a library.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|copyright|unlicense|patents)([._-].*)?$`)

// licenceFiles returns the paths of those files, sorted.
func licenceFiles(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.IsDir() && licenceFile.MatchString(e.Name()) && !strings.HasSuffix(e.Name(), ".go") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// phrases are what only the text of a licence says, the more special ones first.
var phrases = []struct{ id, text string }{
	{"Apache-2.0", "Apache License Version 2.0"},
	{"MPL-2.0", "Mozilla Public License Version 2.0"},
	{"MPL-2.0", "Mozilla Public License, version 2.0"},
	{"AGPL-3.0-only", "GNU AFFERO GENERAL PUBLIC LICENSE"},
	{"LGPL-3.0-only", "GNU LESSER GENERAL PUBLIC LICENSE"},
	{"GPL-3.0-only", "GNU GENERAL PUBLIC LICENSE"},
	{"Unlicense", "This is free and unencumbered software released into the public domain"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
	{"ISC", "Permission to use, copy, modify, and distribute this software for any purpose"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"BSD-3-Clause", "may be used to endorse or promote products"},
	{"BSD-2-Clause", "Redistributions in binary form must reproduce the above copyright"},
	{"Apache-2.0", "Licensed under the Apache License, Version 2.0"},
}

// licenceOf returns the licence of a Go module, by the text of its files.
func licenceOf(dir string) (string, error) {
	paths, err := licenceFiles(dir)
	if err != nil {
		return "", err
	}
	var found []string
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			return "", err
		}
		words := strings.Join(strings.Fields(string(text)), " ")
		for _, x := range phrases {
			if strings.Contains(words, x.text) {
				if !slices.Contains(found, x.id) {
					found = append(found, x.id)
				}
				break
			}
		}
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%s: %w, or one that this program does not know: %v", dir, errNoLicences, paths)
	}
	slices.Sort(found)
	return strings.Join(found, " AND "), nil
}

// licenceTexts returns the texts of all parts' licences, each once, under the names of the parts
// that have it.
func licenceTexts(parts []part) ([]byte, error) {
	type text struct {
		of   []string
		body []byte
	}
	var order [][sha256.Size]byte
	all := map[[sha256.Size]byte]*text{}
	for _, p := range parts {
		paths, err := licenceFiles(p.dir)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			body, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			sum := sha256.Sum256(body)
			if all[sum] == nil {
				all[sum] = &text{body: body}
				order = append(order, sum)
			}
			all[sum].of = append(all[sum].of, fmt.Sprintf("%s %s (%s)", p.name, p.version,
				filepath.Base(path)))
		}
	}
	var b bytes.Buffer
	for _, sum := range order {
		fmt.Fprintf(&b, "%s\n%s\n\n%s\n\n", strings.Repeat("=", 100), strings.Join(all[sum].of, "\n"),
			bytes.TrimSpace(all[sum].body))
	}
	return b.Bytes(), nil
}
