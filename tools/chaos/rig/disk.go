package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// FillDisk writes a file below node i's store until its file system is full. The returned function
// removes it.
func (s *Nodes) FillDisk(i int) (empty func() error, err error) {
	path, err := s.Path(i, "filler")
	if err != nil {
		return nil, err
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The node's process may end; its file system ends with it, and the file too.
	empty = func() error {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	block := make([]byte, 64<<10)
	for size := len(block); size > 0; {
		if _, err := f.Write(block[:size]); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			return empty, err
		}
	}
	return empty, nil
}

// SlowDisk limits what the processes may write to the disk of dir, in bytes a second, by a control
// group. The returned function lifts the limit. Where the machine permits no such group the error
// says why.
func SlowDisk(dir string, bytes int, pids ...int) (lift func() error, err error) {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return nil, err
	}
	device := fmt.Sprintf("%d:%d", st.Dev>>8&0xfff, st.Dev&0xff|st.Dev>>12&0xfff00)
	if _, err := os.Stat("/sys/dev/block/" + device); err != nil {
		return nil, fmt.Errorf("%s lies on no block device that could be slowed: %w", dir, err)
	}
	group, limit, none := "/sys/fs/cgroup/blkio", "blkio.throttle.write_bps_device", device+" 0"
	value := fmt.Sprintf("%s %d", device, bytes)
	if _, err := os.Stat(group); err != nil {
		group, limit = "/sys/fs/cgroup", "io.max"
		value, none = fmt.Sprintf("%s wbps=%d", device, bytes), device+" wbps=max"
	}
	own := filepath.Join(group, "sie-chaos-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("no control group can be made here: %w", err)
	}
	lift = func() error {
		err := os.WriteFile(filepath.Join(own, limit), []byte(none), 0o644)
		for _, pid := range pids {
			// Those that ended have left already.
			_ = os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
		}
		return errors.Join(err, os.Remove(own))
	}
	if err := os.WriteFile(filepath.Join(own, limit), []byte(value), 0o644); err != nil {
		return nil, errors.Join(fmt.Errorf("no limit of writes can be set here: %w", err), lift())
	}
	for _, pid := range pids {
		p := filepath.Join(own, "cgroup.procs")
		if err := os.WriteFile(p, []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return nil, errors.Join(fmt.Errorf("process %d cannot be limited: %w", pid, err), lift())
		}
	}
	return lift, nil
}
