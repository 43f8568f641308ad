package row

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/testrig"
	"github.com/sie-engine/sie/tools/chaos/load"
)

// run sends a fake gateway's clients until its fault has been, and enough after it.
func run(t *testing.T, fault string, d Demand) Line {
	t.Helper()
	g, url := startFake(t, fault)
	p := load.Plan{
		Name: strings.ReplaceAll(t.Name(), "/", "-"), Seed: 7, Gateways: []string{url},
		Models: fakeModels,
		Known:  fakeKnown{},
		Raw:    4, RawRate: 400, Most: 40, Patience: time.Minute,
	}
	if fault == loses {
		p.Patience = time.Second
	}
	start := time.Now()
	l, err := load.Start(p)
	if err != nil {
		t.Fatal(err)
	}
	if fault != honest {
		<-g.hit
	}
	for len(l.Records(0)) < 150 {
		time.Sleep(time.Millisecond) // the load's own pace
	}
	records, err := l.Stop()
	if err != nil {
		t.Fatal(err)
	}
	return Judge(fault, d, Window{Fault: start, Back: time.Now()}, 1, records)
}

// Each fault of a gateway shows in its column, and only there; the line names the request.
func TestPlantedFaultsShowInTheirColumns(t *testing.T) {
	for _, c := range []struct {
		fault  string
		demand Demand
		column func(Line) int
		words  string // of the evidence, "" where none is wanted
	}{
		{honest, Demand{Only200: true, Longest: 10 * time.Second}, nil, ""},
		{loses, Demand{}, func(l Line) int { return l.Lost }, "no answer in 1s"},
		{closes, Demand{}, func(l Line) int { return l.Lost }, "EOF"},
		{closes, Demand{Resets: []int{0}}, func(l Line) int { return l.Reset }, ""},
		{closes, Demand{Resets: []int{1}}, func(l Line) int { return l.Lost }, "EOF"},
		{cutsAnswer, Demand{}, func(l Line) int { return l.Lost }, "EOF"},
		{swaps, Demand{}, func(l Line) int { return l.Wrong }, "items["},
		{drops, Demand{}, func(l Line) int { return l.Wrong }, "items for"},
		{turns, Demand{}, func(l Line) int { return l.Wrong }, "items["},
		{oneBitIsWrong, Demand{}, func(l Line) int { return l.Wrong }, "items[1]"},
		{duplicates, Demand{}, func(l Line) int { return l.Duplicated }, "duplicated: request"},
		{late, Demand{Longest: lateBy}, nil, "waited more than"},
		{late, Demand{Longest: time.Minute, Felt: lateBy}, nil, ""},
		{refuses, Demand{}, func(l Line) int { return l.Refused }, ""},
		{refuses, Demand{Only200: true}, func(l Line) int { return l.Refused }, "only 200"},
		{refusesBadly, Demand{}, func(l Line) int { return l.Lost }, `Retry-After ""`},
		{failsAnswer, Demand{}, func(l Line) int { return l.Lost }, "status 500"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			l := run(t, c.fault, c.demand)
			if c.column != nil && c.column(l) < 1 {
				t.Errorf("the fault is not in its column: %+v", l)
			}
			total := l.Lost + l.Wrong + l.Duplicated + l.Refused + l.Reset
			if c.column != nil {
				total -= c.column(l)
			}
			if total != 0 {
				t.Errorf("other columns count: %+v", l)
			}
			if l.Answered+l.Lost+l.Wrong+l.Refused+l.Reset != l.Requests {
				t.Errorf("the columns do not add up: %+v", l)
			}
			if got := strings.Join(l.Broken, "\n"); (c.words == "") != (got == "") ||
				!strings.Contains(got, c.words) || c.words != "" && !strings.Contains(got, "request Test") {
				t.Errorf("evidence: %q, want %q", got, c.words)
			}
		})
	}
}

// at makes raw answers, one every step from a time on.
func at(records []load.Record, from time.Time, step time.Duration, n int) []load.Record {
	for i := range n {
		end := from.Add(time.Duration(i+1) * step)
		records = append(records, load.Record{Client: "raw", Start: end, End: end})
	}
	return records
}

func TestTimeToFullRate(t *testing.T) {
	back := time.Unix(1000, 0)
	half, full := 200*time.Millisecond, 100*time.Millisecond
	sdk := at(nil, back, full, 50)
	for i := range sdk {
		sdk[i].Client = "sdk 0.3.4"
	}
	for _, c := range []struct {
		name    string
		records []load.Record
		want    float64
	}{
		{"at once", at(nil, back, full, 30), 0},
		{"three seconds at half the rate", at(at(nil, back, half, 15), back.Add(3*time.Second), full, 30),
			2.8},
		{"never", at(nil, back, half, 100), -1},
		{"nothing", nil, -1},
		{"only SDKs", sdk, -1},
		{"before the end of the fault", at(nil, back.Add(-5*time.Second), full, 50), -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := toFullRate(back, 10, c.records); got < c.want-0.15 || got > c.want+0.15 {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
	for _, c := range []struct {
		bound  time.Duration
		broken bool
	}{{2 * time.Second, true}, {4 * time.Second, false}} {
		records := at(at(nil, back, half, 15), back.Add(3*time.Second), full, 30)
		l := Judge("x", Demand{FullRate: c.bound}, Window{Fault: back, Back: back}, 10, records)
		if broken := len(l.Broken) > 0; broken != c.broken {
			t.Errorf("full rate within %v: broken %v: %v", c.bound, broken, l.Broken)
		}
	}
}

// A fault that nobody felt is none.
func TestAFaultMustBeFelt(t *testing.T) {
	start := time.Unix(1000, 0)
	r := load.Record{Client: "raw", Start: start, End: start.Add(time.Second)}
	for felt, broken := range map[time.Duration]bool{0: false, time.Second: false, 2 * time.Second: true} {
		l := Judge("x", Demand{Felt: felt}, Window{Fault: start, Back: start}, 1, []load.Record{r})
		if (len(l.Broken) > 0) != broken {
			t.Errorf("at least %v: %v", felt, l.Broken)
		}
	}
}

// An SDK sees success only, and a reset is allowed to raw clients of the killed gateway alone,
// between the fault and its end.
func TestWhoMaySeeAReset(t *testing.T) {
	w := Window{Fault: time.Unix(1000, 0), Back: time.Unix(1005, 0)}
	for _, c := range []struct {
		name    string
		client  string
		gateway int
		from    int
		lost    int
	}{
		{"in the window", "raw", 1, 1001, 0},
		{"open when it died", "raw", 1, 999, 0},
		{"another gateway", "raw", 0, 1001, 1},
		{"before", "raw", 1, 990, 1},
		{"long after", "raw", 1, 1009, 1},
		{"an SDK", "sdk 0.3.4", 1, 1001, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Unix(int64(c.from), 0)
			r := load.Record{
				Client: c.client, Gateway: c.gateway, Start: start, End: start.Add(1500 * time.Millisecond),
				Verdict: load.Reset,
			}
			if c.client != "raw" {
				r.Verdict = load.Failed
			}
			l := Judge("x", Demand{Resets: []int{1}}, w, 1, []load.Record{r})
			if l.Lost != c.lost {
				t.Errorf("%+v", l)
			}
		})
	}
}

// venv is where tools/setup/venv.sh puts the SDKs.
func venv(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(testrig.Root(t), "build/venv-clients")
	if _, err := os.Stat(filepath.Join(dir, "bin/python")); err == nil {
		return dir
	}
	if os.Getenv("SIE_REQUIRE_CLIENTS") == "1" {
		t.Fatalf("%s is missing: run tools/setup/venv.sh clients", dir)
	}
	t.Skipf("%s is missing: run tools/setup/venv.sh clients", dir)
	return ""
}

// Each generation of the SDK is answered rightly by an honest gateway, and a wrong vector, and an
// error that it does not retry, show.
func TestSDKsAreJudged(t *testing.T) {
	dir := venv(t)
	for _, version := range load.Versions {
		s, err := load.StartSDK(dir, version, 2, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			fault  string
			column func(Line) int
		}{
			{honest, func(l Line) int { return l.Answered }},
			{swaps, func(l Line) int { return l.Wrong }},
			{failsAnswer, func(l Line) int { return l.Lost }},
		} {
			t.Run(version+" "+c.fault, func(t *testing.T) {
				g, url := startFake(t, c.fault)
				start := time.Now()
				l, err := load.Start(load.Plan{
					Name: "sdk-" + c.fault, Gateways: []string{url}, Known: fakeKnown{}, Most: 40,
					Models: fakeModels,
					SDKs:   []*load.SDK{s}, Calls: 2, SDKRate: 100,
				})
				if err != nil {
					t.Fatal(err)
				}
				if c.fault != honest {
					<-g.hit
				}
				for len(l.Records(0)) < 30 {
					time.Sleep(time.Millisecond) // the load's own pace
				}
				records, err := l.Stop()
				if err != nil {
					t.Fatal(err)
				}
				line := Judge(c.fault, Demand{}, Window{Fault: start, Back: start}, 1, records)
				if c.column(line) == 0 || c.fault == honest && (line.Answered < 30 ||
					len(line.Broken) > 0) {
					t.Errorf("%+v", line)
				}
			})
		}
		if err := s.Close(); err != nil {
			t.Errorf("SDK %s: %v", version, err)
		}
	}
}
