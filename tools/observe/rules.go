package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/sie-engine/sie/deploy"
)

// Times of alerts are divided by these: minutes become seconds. A range needs some scrapes in it.
const (
	shorterFor   = 60
	shorterRange = 20
	leastFor     = time.Second
	leastRange   = 10 * time.Second
)

var (
	forLine = regexp.MustCompile(`(?m)^(\s+for: )(\w+)$`)
	ranges  = regexp.MustCompile(`\[(\w+)\]`)
)

// shorten divides the times of rules or of an expression. Nothing else changes.
func shorten(text string) string {
	divide := func(s string, by int, least time.Duration) string {
		d, err := model.ParseDuration(s)
		if err != nil {
			return s
		}
		return model.Duration(max(time.Duration(d)/time.Duration(by), least).Round(time.Second)).String()
	}
	text = forLine.ReplaceAllStringFunc(text, func(line string) string {
		m := forLine.FindStringSubmatch(line)
		return m[1] + divide(m[2], shorterFor, leastFor)
	})
	return ranges.ReplaceAllStringFunc(text, func(r string) string {
		return "[" + divide(strings.Trim(r, "[]"), shorterRange, leastRange) + "]"
	})
}

// writeRules writes the chart's rules into dir, changed, and returns the file.
func writeRules(dir, name string, change func(text string) string) (string, error) {
	text, err := fs.ReadFile(deploy.Files(), "alerts/sie-rules.yaml")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	changed := change(strings.ReplaceAll(string(text), "__NAMESPACE__", "sie"))
	return path, os.WriteFile(path, []byte(changed), 0o600)
}
