package dev

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// documentsTime bounds the writing of model files: sie-server may ask the hub what a repository
// holds.
const documentsTime = 60 * time.Second

// documentsDir is the directory of the files of the models that the servers serve, "" for the whole
// catalog. sie-config reads it, because only a sie-server can look into a directory or a repository
// of weights.
func (o *Options) documentsDir() string {
	if len(o.Models) > 0 {
		return o.path("run", "models")
	}
	return o.ModelsDir
}

// documents has a sie-server write the files of the models that the servers serve, and sets the
// models of routes that name none: to those, in their order, as a sie-server with them has it.
func (o *Options) documents(ctx context.Context) error {
	if len(o.Models) == 0 {
		return nil
	}
	dir := o.documentsDir()
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	args := []string{"models", "--documents", dir}
	if o.ModelsDir != "" {
		args = append(args, "--models-dir", o.ModelsDir)
	}
	for _, m := range o.Models {
		args = append(args, "-m", m)
	}
	ctx, cancel := context.WithTimeout(ctx, documentsTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.program("sie-server"), args...)
	var listed, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &listed, &text
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("sie-server models: %w: %s", err, bytes.TrimSpace(text.Bytes()))
	}
	o.defaults = strings.Fields(listed.String())
	return nil
}
