package obs

import (
	"io"
	"log/slog"
)

// NewLogger returns a logger that writes to w: one JSON object per line if json is set, readable
// text otherwise. verbose adds debug lines.
func NewLogger(w io.Writer, json, verbose bool) *slog.Logger {
	opt := &slog.HandlerOptions{Level: slog.LevelInfo}
	if verbose {
		opt.Level = slog.LevelDebug
	}
	if !json {
		return slog.New(slog.NewTextHandler(w, opt))
	}
	opt.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 { // the names that the reference's log pipelines expect
			switch a.Key {
			case slog.TimeKey:
				a.Key = "timestamp"
			case slog.MessageKey:
				a.Key = "message"
			}
		}
		return a
	}
	return slog.New(slog.NewJSONHandler(w, opt))
}
