package without

// The packages of the judges of the control plane.
const (
	ledgerOf  = "configd/ledger"
	poolsOf   = "gateway/pools"
	modelsOf  = "gateway/models"
	gatewayOf = "gateway/server"
	histories = "tools/test/histories"
)

const mirror = "internal/configpoll/mirror.go"

// Tests that judge several.
const (
	converges        = "TestConverges"
	deltasOnTheirWay = "TestDeltasOnTheirWay"
	notKnown         = "TestWhatIsNotKnownIsNotMissing"
	poolHistories    = "TestHistoriesOfCallsAreLinearisable"
)

// controlFixes returns the fixes of what says which models and pools there are.
func controlFixes() []Fix {
	return []Fix{
		// What says which models there are.
		{
			Name:    "kept-models",
			What:    "what was added outlives sie-config",
			Patches: []Patch{{"gateway/dev/specs.go", `"SIE_CONFIG_STORE_DIR="+o.path("config")`, `"X=1"`}},
			Row:     "r1-memory:config/kill9", Sees: "chaos/",
		}, {
			Name: "compared-store",
			What: "a change replaces the state that it was made of, and no other",
			Patches: []Patch{{
				"configd/ledger/directory.go", "if when != (bucket.Condition{}) {",
				"if false {",
			}},
			Tests: []Test{{ledgerOf, "TestDirectoryCompares"}},
		}, {
			Name:    "kept-answers",
			What:    "the answer of an Idempotency-Key is stored with its change",
			Patches: []Patch{{"configd/write.go", "next = next.Answered(", "_ = next.Answered("}},
			Tests:   []Test{{"configd", "TestARestartForgetsNothing"}, {"configd", "TestOneKeyAtOnce"}},
		}, {
			Name: "trusted-deltas",
			What: "a delta of a producer that is not trusted is not heard",
			Patches: []Patch{{"internal/configpoll/deltas.go",
				`return of.Producer == name || strings.HasPrefix(of.Producer, name+"-")`,
				`return of.Producer == name || true`}},
			Tests: []Test{{modelsOf, "TestDeltasSayWhenToAsk"}, {histories, deltasOnTheirWay}},
		}, {
			Name: "asked-without-deltas",
			What: "gateways and sidecars ask sie-config also when nobody told them of a change",
			Patches: []Patch{{"internal/configpoll/poller.go", "timer.Reset(p.every)",
				"timer.Reset(1 << 60)"}},
			Tests: []Test{{modelsOf, converges}, {"sidecar/control", converges}},
		}, {
			Name:    "older-store",
			What:    "an epoch of other documents is another configuration, whatever its number",
			Patches: []Patch{{"gateway/models/fetch.go", "ModelsHash: answer.ModelsHash", `ModelsHash: ""`}},
			Tests:   []Test{{modelsOf, converges}, {histories, "TestAnOlderStore"}},
		}, {
			Name: "deletions-travel",
			What: "a gateway has no model that the export has not; changes that do not lead there are not believed",
			Patches: []Patch{
				{mirror, "for _, id := range e.Removed {", "for _, id := range e.Removed[:0] {"},
				{mirror, "&& digest(items) == e.Digest {", "{"},
			},
			Tests: []Test{{histories, deltasOnTheirWay}},
		}, {
			Name: "unknown-models",
			What: "a gateway that does not know the models yet does not say that there are none",
			Patches: []Patch{{"gateway/server/configs.go", "\tr.Fail(dialect.RouteNative, errs.NoCatalog())\n\treturn false",
				"\tanswer(r, map[string]any{})\n\treturn false"}},
			Tests: []Test{{gatewayOf, notKnown}},
		},
		// Which workers are whose.
		{
			Name: "pools-swap",
			What: "a change of pools replaces the document that it was made of, and no other",
			Patches: []Patch{{"internal/lease/store.go",
				"m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(over, 10))",
				"_ = strconv.FormatUint(over, 10)"}},
			Tests: []Test{{poolsOf, poolHistories}},
		}, {
			Name:    "pools-put-back",
			What:    "a gateway puts the pools that it knows into a bucket that was made again",
			Patches: []Patch{{"gateway/pools/keeper.go", "k.foreign(v) && merge(", "false && merge("}},
			Tests:   []Test{{poolsOf, "TestAnyCallsAgainstAPlainModel"}},
			Row:     "r1-memory:pools/lost", Sees: "pool",
		}, {
			Name: "lost-answers",
			What: "a change of pools whose answer was lost is found again by its id",
			Patches: []Patch{{"internal/lease/store.go", "known := s.find(ctx, v, id); known {",
				"known := uint64(0), true; known {"}},
			Tests: []Test{{poolsOf, "TestALostAnswerIsFoundAgain"}},
		}, {
			Name:    "no-older-view",
			What:    "a gateway shows no older pools than it has shown",
			Patches: []Patch{{"gateway/pools/keeper.go", "&& v.Revision < old.Revision {", "&& false {"}},
			Tests:   []Test{{poolsOf, poolHistories}},
		}, {
			Name:    "unknown-pools",
			What:    "a gateway that has not seen the pools does not say that there are none",
			Patches: []Patch{{"gateway/pools/calls.go", "return k.view.Load().Seen()", "return true"}},
			Tests:   []Test{{gatewayOf, notKnown}},
		},
	}
}
