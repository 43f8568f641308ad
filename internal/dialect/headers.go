package dialect

import (
	"strconv"
	"strings"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// SuccessHeaders appends the headers of a successful encode, score or extract answer to dst: the
// version the caller gets along with, where the time went in milliseconds with two decimals, and
// who served it.
func SuccessHeaders(dst []Header, caller Caller, realVersion string, t *api.Timing) []Header {
	dst = append(dst, Header{HeaderServerVersion, caller.ServerVersion(realVersion)}, Header{"X-SIE-Served-By", "local"})
	if t == nil {
		return dst
	}
	dst = append(dst, Header{"X-Queue-Time", millis(t.Queue)}, Header{"X-Tokenization-Time", millis(t.Tokenization)},
		Header{"X-Inference-Time", millis(t.Inference)}, Header{"X-Total-Time", millis(t.Total)})
	if t.Postprocessing > 0 {
		dst = append(dst, Header{"X-Postprocessing-Time", millis(t.Postprocessing)})
	}
	if t.Detailed {
		dst = append(dst, Header{"X-Preprocess-Time", millis(t.Preprocess)}, Header{"X-Batch-Wait-Time", millis(t.BatchWait)})
	}
	return dst
}

func millis(ms float64) string { return strconv.FormatFloat(ms, 'f', 2, 64) }

// CheckMachineProfile compares an X-SIE-MACHINE-PROFILE header with what this worker is, ignoring
// case and surrounding space. An absent header passes; a worker without an identity ("") fits no
// profile. nil means that the request may go on.
func CheckMachineProfile(header, worker string) *errs.Error {
	if header == "" {
		return nil
	}
	if worker == "" {
		return errs.MachineProfile(header, nil)
	}
	if strings.EqualFold(strings.TrimSpace(header), strings.TrimSpace(worker)) {
		return nil
	}
	return errs.MachineProfile(header, &worker)
}

// CheckRemote checks an X-SIE-Remote header. This server never forwards, so the only value there is
// asks for what is done anyway; any other is a 400. present tells an empty header from none.
func CheckRemote(value string, present bool) *errs.Error {
	if !present || value == "forbid" {
		return nil
	}
	return errs.Invalid("X-SIE-Remote", "X-SIE-Remote accepts only 'forbid'")
}
