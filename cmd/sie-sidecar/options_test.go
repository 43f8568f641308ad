package main

import (
	"testing"

	"github.com/sie-engine/sie/internal/cli/clitest"
)

// deploy/options has every flag of this program.
func TestOptions(t *testing.T) { clitest.Options(t, newParser(&cli{})) }
