package testrig

import (
	"os"
	"strconv"
	"testing"
)

// Turn returns the number in SIE_TEST_TURN, which says what part of a long list a test takes so
// that turns in a row see all of it. Without a number given is false: a test takes the whole list.
func Turn(t testing.TB) (n int, given bool) {
	t.Helper()
	text := os.Getenv("SIE_TEST_TURN")
	if text == "" {
		return 0, false
	}
	u, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		t.Fatalf("SIE_TEST_TURN=%s is not a number", text)
	}
	return int(u), true
}

// Part returns what says whether this turn has case number i of a list of equals: one of parts
// turns in a row has it, and each without a number in SIE_TEST_TURN.
func Part(t testing.TB, parts int) func(i int) bool {
	t.Helper()
	turn, given := Turn(t)
	return func(i int) bool { return !given || i%parts == turn%parts }
}
