package dialect

import (
	"strconv"
	"strings"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/errs"
)

// SuccessHeaders appends the headers of a successful encode, score or extract answer to dst. They
// are the server version that suits the caller, the timings in milliseconds with two decimals, and
// who served the request.
func SuccessHeaders(dst []Header, caller Caller, realVersion string, t *api.Timing) []Header {
	dst = append(dst, Header{HeaderServerVersion, caller.ServerVersion(realVersion)},
		Header{"X-SIE-Served-By", "local"})
	if t == nil {
		return dst
	}
	dst = append(dst, Header{"X-Queue-Time", millis(t.Queue)},
		Header{"X-Tokenization-Time", millis(t.Tokenization)},
		Header{"X-Inference-Time", millis(t.Inference)}, Header{"X-Total-Time", millis(t.Total)})
	if t.Postprocessing > 0 {
		dst = append(dst, Header{"X-Postprocessing-Time", millis(t.Postprocessing)})
	}
	if t.Detailed {
		dst = append(dst, Header{"X-Preprocess-Time", millis(t.Preprocess)},
			Header{"X-Batch-Wait-Time", millis(t.BatchWait)})
	}
	return dst
}

func millis(ms float64) string { return strconv.FormatFloat(ms, 'f', 2, 64) }

// CheckMachineProfile returns an error unless an X-SIE-MACHINE-PROFILE header fits this worker's
// profile. It ignores case and surrounding space. An absent header fits every worker; a worker
// without an identity ("") fits no profile.
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

// CheckRemote checks an X-SIE-Remote header. This server never forwards a request, so the only
// allowed value is "forbid"; any other is a 400. present tells an empty header from an absent one.
func CheckRemote(value string, present bool) *errs.Error {
	if !present || value == "forbid" {
		return nil
	}
	return errs.Invalid("X-SIE-Remote", "X-SIE-Remote accepts only 'forbid'")
}
