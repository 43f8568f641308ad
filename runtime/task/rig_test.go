package task_test

import (
	"testing"

	"github.com/sie-engine/sie/runtime/service/servicetest"
	"github.com/sie-engine/sie/runtime/task"
	"github.com/sie-engine/sie/runtime/testmodels"
)

// The test helpers that this package shares with others.
type (
	rig             = servicetest.Rig
	Options         = servicetest.Options
	Request         = servicetest.Request
	ScoreRequest    = servicetest.ScoreRequest
	ExtractRequest  = servicetest.ExtractRequest
	ClassifyRequest = servicetest.ClassifyRequest
	Result          = servicetest.Result
	Matrix          = task.Matrix
)

const (
	mean    = testmodels.Mean
	cls     = testmodels.CLS
	prompts = testmodels.Prompts
)

var (
	start         = servicetest.Start
	held          = servicetest.Held
	dirs          = testmodels.Dirs
	adHoc         = testmodels.AdHoc
	family        = testmodels.Family
	float32s      = testmodels.Float32s
	norm          = testmodels.Norm
	words         = testmodels.Words
	copyModel     = testmodels.CopyModel
	replace       = testmodels.Replace
	loadtime      = testmodels.Loadtime
	withTokenizer = testmodels.WithTokenizer
	edit          = testmodels.Edit
	entry         = testmodels.Entry
	adapted       = testmodels.Adapted
	shrink        = testmodels.Shrink
	relabelled    = testmodels.Relabelled
)

func untilLoaded[R any](t *testing.T, ask func() (R, error)) (R, error) {
	t.Helper()
	return testmodels.UntilLoaded(t, ask)
}

type Sparse = task.Sparse

var (
	floats    = task.Floats
	ints      = task.Ints
	sparseMap = task.SparseMap
	softmax   = task.Softmax
)
