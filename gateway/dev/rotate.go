package dev

import (
	"io"
	"os"
	"sync"
)

const (
	maxLog  = 8 << 20 // bytes of a log file; the one before it is kept as NAME.1
	maxTail = 2 << 10 // bytes of a log's end that messages show
)

// logFile is the bounded log of one process. A write never fails: what the disk does not take is
// dropped and counted, because an error would stop the process's output and then the process. Its
// methods may be called concurrently; its lock is held over writes to the file, which nobody else
// waits for.
type logFile struct {
	path string
	most int64

	mu      sync.Mutex
	file    *os.File
	size    int64
	tail    []byte
	dropped int64
}

func openLog(path string, most int64) (*logFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &logFile{path: path, most: most, file: f, size: size}, nil
}

// Write appends p, and begins a new file when the present one would pass its bound.
func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, p...)
	if n := len(l.tail) - maxTail; n > 0 {
		l.tail = append(l.tail[:0], l.tail[n:]...)
	}
	if l.size > 0 && l.size+int64(len(p)) > l.most {
		l.rotate()
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	if err != nil {
		l.dropped += int64(len(p) - n)
	}
	return len(p), nil
}

// rotate keeps the present file as NAME.1. Where that fails, the file is emptied: the bound holds.
func (l *logFile) rotate() {
	next, err := (*os.File)(nil), os.Rename(l.path, l.path+".1")
	if err == nil {
		next, err = os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	}
	if err != nil {
		_ = l.file.Truncate(0)
		l.size = 0
		return
	}
	_ = l.file.Close()
	l.file, l.size = next, 0
}

// Tail returns the last lines that were written.
func (l *logFile) Tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.tail)
}

func (l *logFile) Close() error { return l.file.Close() }
