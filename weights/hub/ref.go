package hub

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/sie-engine/sie/internal/files"
)

// defaultRevision is the hub's name for the head of a repository.
const defaultRevision = "main"

var (
	// The hub's own rules for a repository id: an optional owner and a name of letters, digits,
	// '_', '-' and '.', without ".." or "--" (which separates the parts in the cache).
	repoIDPattern = regexp.MustCompile(
		`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95})?$`)
	revisionPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./+=@-]{0,254}$`)
	commitPattern   = regexp.MustCompile(`^[0-9a-f]{40}$`)
	sha256Pattern   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// modelRef is a checked repository id and revision. Both are safe in a URL and, as repoFolder and
// refs/<revision>, in a path.
type modelRef struct {
	id        string
	revision  string   // branch, tag or commit
	unrevised bool     // the caller named no revision
	adapter   int64    // not 0: only a LoRA adapter is wanted, of at most this many bytes
	tokenizer bool     // only the files of the tokenizer are wanted
	beside    []string // further files that are wanted with an adapter
}

func parseRef(id, revision string) (modelRef, error) {
	ref := modelRef{id: id, revision: revision}
	if !repoIDPattern.MatchString(id) || strings.Contains(id, "..") || strings.Contains(id, "--") ||
		strings.HasSuffix(id, ".git") || strings.HasSuffix(id, ".") {
		return ref, fail(ClassConfig, nil,
			"is neither an existing directory nor a valid model id; an id looks like "+
				"\"org/name\", with letters, digits, '_', '-' and '.'")
	}
	if revision == "" {
		ref.revision, ref.unrevised = defaultRevision, true
	}
	if lower := strings.ToLower(ref.revision); commitPattern.MatchString(lower) {
		ref.revision = lower
	}
	if !revisionPattern.MatchString(ref.revision) {
		return ref, fail(ClassConfig, nil, "revision %s is not a branch, tag or commit name",
			quoteShort(revision))
	}
	for part := range strings.SplitSeq(ref.revision, "/") {
		if part == "" || strings.HasPrefix(part, ".") {
			return ref, fail(ClassConfig, nil, "revision %s is not a branch, tag or commit name",
				quoteShort(revision))
		}
	}
	return ref, nil
}

// isCommit reports whether the revision is a commit, which never changes.
func (r modelRef) isCommit() bool { return commitPattern.MatchString(r.revision) }

// repoFolder returns the name of the repository's folder in the cache.
func (r modelRef) repoFolder() string { return "models--" + strings.ReplaceAll(r.id, "/", "--") }

// short cuts text from outside to fit a message.
func short(text string) string { return files.Clip(text, 120) }

// quoteShort quotes text from outside, escaped and cut, for a message.
func quoteShort(text string) string { return strconv.Quote(short(text)) }
