package pages

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// Pages ask nobody else for anything, have no script or style of their own in the markup, and no
// script makes markup or code of text. Each script that a page names is there, and each is named.
func TestPagesAreStrict(t *testing.T) {
	named := map[string]bool{}
	elsewhere := regexp.MustCompile(`(?i)(https?:|wss?:)?//[a-z0-9.-]+\.[a-z]+`)
	inline := regexp.MustCompile(`(?i)<script(?: [^>]*)?>[^<]|<style|\sstyle=|\son[a-z]+=|javascript:`)
	files := regexp.MustCompile(`(?:src|href)="/static/([^"]+)"`)
	sinks := regexp.MustCompile(
		`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\("on|srcdoc|createContextualFragment|(local|session)Storage|document\.cookie`)
	entries, err := fs.ReadDir(static, "static")
	if err != nil || len(entries) < 8 {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	for _, e := range entries {
		text := string(read(e.Name()))
		if strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		for _, found := range elsewhere.FindAllString(text, -1) {
			if found != "http://www.w3.org" { // the name of SVG
				t.Errorf("%s asks elsewhere: %s", e.Name(), found)
			}
		}
		if strings.HasSuffix(e.Name(), ".html") {
			if found := inline.FindString(text); found != "" {
				t.Errorf("%s has %q in the markup", e.Name(), found)
			}
			for _, m := range files.FindAllStringSubmatch(text, -1) {
				named[m[1]] = true
				read(m[1])
			}
		}
		if found := sinks.FindString(text); found != "" && strings.HasSuffix(e.Name(), ".js") {
			t.Errorf("%s has %q", e.Name(), found)
		}
	}
	for _, e := range entries {
		loaded := strings.HasSuffix(e.Name(), ".js") || strings.HasSuffix(e.Name(), ".css")
		if loaded && !named[e.Name()] {
			t.Errorf("no page uses %s", e.Name())
		}
	}
	for _, rule := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'",
		"connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
		"require-trusted-types-for 'script'", "trusted-types 'none'"} {
		if !strings.Contains(policy, rule) {
			t.Errorf("the policy lacks %s", rule)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
		t.Errorf("the policy is %s", policy)
	}
}
