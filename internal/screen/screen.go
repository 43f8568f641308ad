package screen

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// Terminal reports whether the standard output is a terminal.
func Terminal() bool { return term.IsTerminal(int(os.Stdout.Fd())) }

// Screen is the terminal of this process while a board is drawn on it. Its methods belong to one
// goroutine.
type Screen struct{ restore func() }

// interrupt is what Ctrl-C is in a raw terminal.
const interrupt = 3

// Open takes the terminal. quit is called when the user presses q or Ctrl-C, and when there is no
// more input.
func Open(quit func()) (*Screen, error) {
	s := &Screen{restore: func() {}}
	// A raw terminal passes on each key at once and does not show it.
	if in := int(os.Stdin.Fd()); term.IsTerminal(in) {
		old, err := term.MakeRaw(in)
		if err != nil {
			return nil, err
		}
		s.restore = func() { _ = term.Restore(in, old) }
		go func() {
			key := make([]byte, 1)
			for {
				n, err := os.Stdin.Read(key)
				if err != nil || n == 1 && (key[0] == 'q' || key[0] == interrupt) {
					quit()
					return
				}
			}
		}()
	}
	fmt.Print("\x1b[?1049h\x1b[?25l") // the alternate screen, without a cursor
	return s, nil
}

// Draw replaces what is shown by the lines that render returns for the size of the terminal.
func (s *Screen) Draw(render func(width, height int) string) {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width == 0 || height == 0 {
		width, height = 80, 24
	}
	fmt.Print("\x1b[H" + strings.ReplaceAll(render(width, height), "\n", "\x1b[K\r\n") + "\x1b[J")
}

// Close gives the terminal back as it was.
func (s *Screen) Close() {
	fmt.Print("\x1b[?25h\x1b[?1049l")
	s.restore()
}
