package without

// Fix is one fix of the protocol, how to leave it out, and what is red then.
type Fix struct {
	Name    string // no spaces
	What    string // the fix does, for people
	Patches []Patch
	Tests   []Test // each is red without the fix
	Row     string // of the chaos table, as topology:row; "" where tests show it
	Sees    string // what the row says is broken then
}

// Test is a test of the tree.
type Test struct {
	Package string // its folder
	Name    string // of the function, perhaps with a part's
}

// String returns package:test.
func (t Test) String() string { return t.Package + ":" + t.Name }

// The packages of the judges.
const (
	queue   = "gateway/queue"
	worker  = "sidecar/worker"
	results = "sidecar/results"
	busOf   = "internal/bus"
)

// The files that patches change most.
const (
	keeper   = "gateway/queue/keeper.go"
	inbox    = "gateway/queue/inbox.go"
	intake   = "sidecar/worker/intake.go"
	core     = "sidecar/worker/core.go"
	outcomes = "sidecar/worker/outcomes.go"
	fill     = "sidecar/worker/fill.go"
	server   = "sidecar/worker/server.go"
	tombs    = "sidecar/worker/tombs.go"
)

// Fixes returns the table: those of the data path in the order of a request's way, then those of
// the control plane.
func Fixes() []Fix {
	return append([]Fix{
		// What a gateway publishes again, and when.
		{
			Name: "silence",
			What: "a slice without a mark for 15 s after it was taken is published again",
			Patches: []Patch{{
				keeper,
				"age(s.markedAt) > work.MarkTimeout:",
				"age(s.markedAt) > 1000*work.MarkTimeout:",
			}},
			Tests: []Test{{queue, "TestSilence/a_mark,_a_heartbeat"}},
		}, {
			Name:    "silent-worker",
			What:    "a marked slice of a worker without heartbeats is published again after 6 s",
			Patches: []Patch{{keeper, "&& q.gone(s.worker):", "&& q.gone(s.worker) && false:"}},
			Tests:   []Test{{queue, "TestSilence/a_mark,_no_heartbeat"}},
		}, {
			Name:    "unmarked",
			What:    "a slice that was delivered and not marked for 2 s is published again",
			Patches: []Patch{{keeper, "case s.unmarkedLocked(", "case false && s.unmarkedLocked("}},
			Tests:   []Test{{queue, "TestSilence/no_mark"}},
		}, {
			Name:    "lost-worker",
			What:    "a lane that lost a worker is looked at more often, and waits for marks for 1 s only",
			Patches: []Patch{{keeper, "hurry: q.lostWorker(r.line.lane)", "hurry: false"}},
			Tests:   []Test{{queue, "TestSilence/no_mark,_a_worker_lost"}},
		}, {
			Name:    "silent-server",
			What:    "a slice whose server answers no Ping is published again at once",
			Patches: []Patch{{inbox, "q.silentLocked(r, s, mark, now)", "_ = s"}},
			Tests:   []Test{{queue, "TestSilence/a_silent_server"}},
		}, {
			Name: "tell-silent-server",
			What: "a sidecar tells the gateways what is in a server that answers no Ping",
			Patches: []Patch{{
				core,
				"\t\tfor _, s := range c.sentSlices() {\n" +
					"\t\t\tc.sendMark(s, work.ServerSilent)\n" +
					"\t\t}\n",
				"",
			}},
			Tests: []Test{{worker, "TestASilentServerIsReported"}},
		}, {
			Name:    "restarted-worker",
			What:    "a slice that a worker's earlier process marked is published again at once",
			Patches: []Patch{{keeper, "q.restarted(s):", "q.restarted(s) && false:"}},
			Tests:   []Test{{queue, "TestAWorkerWasStartedAgain/another_process"}},
		}, {
			Name:    "younger-stream",
			What:    "what was published to an older stream is published again",
			Patches: []Patch{{keeper, "case s.epoch != pool.epoch, s.stored", "case s.stored"}},
			Tests:   []Test{{queue, "TestLostStreams/a_new_stream_with_others'_work"}},
		}, {
			Name: "lower-sequence",
			What: "what lies above the stream's last sequence is published again",
			Patches: []Patch{{
				keeper,
				"pool.epoch, s.storedAt.Before(pool.lastAt) && pool.last < s.seq:",
				"pool.epoch:",
			}},
			Tests: []Test{{queue, "TestLostStreams/an_older_copy_of_the_stream"}},
		}, {
			Name:    "no-ack",
			What:    "a publish that the broker does not answer is made again, as the same attempt",
			Patches: []Patch{{keeper, "if s.sentAt.Before(since) || age", "if false && age"}},
			Tests:   []Test{{queue, "TestNothingIsLost"}},
		}, {
			Name: "heartbeat-gap",
			What: "after a gap of its heartbeat above 5 s a gateway publishes all unanswered again",
			Patches: []Patch{{
				keeper,
				"everything && connected && q.gap(now)",
				"everything && false && q.gap(now)",
			}},
			Tests: []Test{{queue, "TestAgesStopWithoutAConnection"}},
		}, {
			Name:    "ages-stop",
			What:    "no age of a slice grows while the gateway itself has no connection",
			Patches: []Patch{{keeper, "if from.Before(since) {", "if false {"}},
			Tests:   []Test{{queue, "TestAgesStopWithoutAConnection"}},
		}, {
			Name:    "lost-message",
			What:    "a slice that waits although its consumer holds nothing is published again after 2 s",
			Patches: []Patch{{keeper, "(checked.empty || checked.floor >= s.seq)", "false"}},
			Tests:   []Test{{queue, "TestARemovedMessageIsPublishedAgain"}},
		}, {
			Name: "consumer-again",
			What: "the consumer of work that is untaken for 2 s is made sure of",
			Patches: []Patch{{
				keeper,
				"f.check = f.check || waited > untakenAfter || f.hurry && waited > hurryEvery",
				"",
			}},
			Tests: []Test{{queue, "TestStreamOrConsumerIsDeleted/consumer"}},
		}, {
			Name:    "untaken",
			What:    "a gateway's heartbeats name the models whose work is untaken",
			Patches: []Patch{{keeper, "f.untaken = f.untaken || waited > announceFrom", ""}},
			Tests:   []Test{{queue, "TestHeartbeats"}},
		}, {
			Name: "attempt-in-id",
			What: "Nats-Msg-Id has the attempt, or the duplicate window swallows what is published again",
			Patches: []Patch{{"gateway/queue/send.go",
				`item.WorkItemID + "#" + strconv.FormatUint(uint64(item.Attempt), 10)`, "item.WorkItemID"}},
			Tests: []Test{{queue, "TestSilence"}, {queue, "TestNothingIsLost"}},
		}, {
			Name:    "supersede",
			What:    "the message that another attempt has taken the place of is removed",
			Patches: []Patch{{keeper, "q.supersede(r.line, s)", "_ = r"}},
			Tests:   []Test{{queue, "TestSilence/a_mark,_a_heartbeat"}},
		}, {
			Name: "full-waits",
			What: "what is published again waits out a full stream",
			Patches: []Patch{{inbox, "if s.attempt == 0 && s.tries == 1 && r.placed.IsZero() {",
				"if true {"}},
			Tests: []Test{{queue, "TestAFullQueueRefuses"}},
		},
		// What a gateway does with what comes.
		{
			Name: "duplicate-result",
			What: "a second result of a slice is dropped, and its sidecar told so",
			Patches: []Patch{{
				inbox,
				"case s.state == done || r.over:\n" +
					"\t\treturn receipts[r.doneLocked(i)], nil\n" +
					"\tcase s.state == idle:\n" +
					"\t\treturn nil, fmt.Errorf(\"a result",
				"case r.over:\n" +
					"\t\treturn receipts[r.doneLocked(i)], nil\n" +
					"\tcase s.state == idle:\n" +
					"\t\treturn nil, fmt.Errorf(\"a result",
			}},
			Tests: []Test{{queue, "TestReceipts"}},
		}, {
			Name:    "unknown-request",
			What:    "a result of an answered request has the receipt unknown, or it is kept for ever",
			Patches: []Patch{{inbox, "q.answer(m, receipts[work.Unknown])", "_ = i"}},
			Tests:   []Test{{queue, "TestReceipts"}},
		}, {
			Name: "missing-chunks",
			What: "a result that lacks a chunk has the receipt again",
			Patches: []Patch{{
				"gateway/queue/chunks.go",
				"len(missing) > 0 {",
				"len(missing) > 1000 {",
			}},
			Tests: []Test{{queue, "TestResultsInChunks"}},
		}, {
			Name:    "cancel",
			What:    "the slices of a client that leaves are cancelled",
			Patches: []Patch{{"gateway/queue/run.go", "if running {", "if false && running {"}},
			Tests:   []Test{{queue, "TestAClientLeaves"}},
		}, {
			Name: "cancel-again",
			What: "slices whose cancellation was lost are cancelled when a worker says that it has them",
			Patches: []Patch{{
				inbox,
				"case m.Reply == \"\" && kindOf(m.Data) == work.KindMark:",
				"case m.Reply == \"none\" && kindOf(m.Data) == work.KindMark:",
			}},
			Tests: []Test{{queue, "TestAClientLeavesWhileTheBrokerIsAway"}},
		}, {
			Name:    "dead-letter",
			What:    "a slice that ended two servers while it was alone in them is a dead letter",
			Patches: []Patch{{inbox, "case s.aloneDied >= aloneDeaths:", "case s.aloneDied >= 1000:"}},
			Tests:   []Test{{queue, "TestPoison"}},
		}, {
			Name:    "last-death",
			What:    "a slice ends no more than three servers",
			Patches: []Patch{{inbox, "case len(s.died) >= maxDeaths:", "case len(s.died) >= 1000:"}},
			Tests:   []Test{{queue, "TestDeathsOfOlderAttemptsCount"}},
		}, {
			Name: "death-once",
			What: "a death counts once for all its marks",
			Patches: []Patch{{
				inbox,
				"|| slices.Contains(s.died, d) {",
				"|| false && slices.Contains(s.died, d) {",
			}},
			Tests: []Test{{queue, "TestDeathsOfOlderAttemptsCount/a_mark_again"}},
		}, {
			Name:    "alone-after-death",
			What:    "what is published after a server's death runs alone",
			Patches: []Patch{{inbox, "\ts.alone = true\n", ""}},
			Tests:   []Test{{queue, "TestPoison"}},
		},
		// The connection and the streams.
		{
			Name: "reconnect-buffer",
			What: "what was reported as not sent is never sent later",
			Patches: []Patch{{
				"internal/bus/connect.go",
				"nats.ReconnectBufSize(-1)",
				"nats.ReconnectBufSize(8<<20)",
			}},
			Tests: []Test{{busOf, "TestNothingIsSentLater"}},
		}, {
			Name: "drained-without-connection",
			What: "a queue that ends without a connection leaves no subscription behind",
			Patches: []Patch{{
				"sidecar/pull/pull.go",
				"if q.nc.IsConnected() && q.sub.Drain() == nil && q.nc.IsConnected() &&\n",
				"if q.sub.Drain() == nil ||\n",
			}},
			Tests: []Test{{"sidecar/pull", "TestCloseWithoutConnection"}},
		}, {
			Name: "discard-per-subject",
			What: "a flooded model refuses its own work, and loses none",
			Patches: []Patch{{
				"internal/bus/streams.go",
				"DiscardNewPerSubject: true,",
				"DiscardNewPerSubject: false,",
			}},
			Tests: []Test{{busOf, "TestDefinitionsOfWork"}},
		}, {
			Name: "leave-at-ack",
			What: "acknowledged work leaves the stream at once",
			Patches: []Patch{{
				"internal/bus/streams.go",
				"jetstream.WorkQueuePolicy",
				"jetstream.LimitsPolicy",
			}},
			Tests: []Test{{busOf, "TestDefinitionsOfWork"}},
		},
		// What a sidecar takes.
		{
			Name: "no-responders",
			What: "a pull without responders has stream and consumer looked after at once",
			Patches: []Patch{{
				fill,
				"c.do.count(\"pull_errors\", \"absent\")\n" +
					"\t\tc.absent(q)",
				"c.do.count(\"pull_errors\", \"absent\")",
			}},
			Tests: []Test{{worker, "TestNoRespondersIsActedOnAtOnce"}},
		}, {
			Name: "redelivered-in-hand",
			What: "a redelivered slice that is in hand is not run beside itself",
			Patches: []Patch{{
				intake,
				"if old := c.slices[it.WorkItemID]; old != nil {",
				"if old := c.slices[it.WorkItemID]; old != nil && false {",
			}},
			Tests: []Test{{worker, "TestRandomOperations"}},
		}, {
			Name:    "redelivered-done",
			What:    "a redelivered slice that was answered is acknowledged and not run again",
			Patches: []Patch{{intake, "if c.done.Has(it.WorkItemID, it.Attempt) {", "if false {"}},
			Tests:   []Test{{worker, "TestRandomOperations"}},
		}, {
			Name: "tombstones",
			What: "work that comes after its cancellation is dropped",
			Patches: []Patch{{
				intake,
				"case c.tombs.has(c.now, s.request, it.Index):",
				"case it == nil:",
			}},
			Tests: []Test{{worker, "TestCancellation"}},
		}, {
			Name: "cancelled-in-hand",
			What: "work in hand is dropped at its cancellation",
			Patches: []Patch{{
				tombs,
				"if s.item.Index >= body.From {",
				"if false && s.item.Index >= body.From {",
			}},
			Tests: []Test{{worker, "TestCancellation"}},
		}, {
			Name:    "silent-gateway",
			What:    "work of a gateway without heartbeats for 10 s is dropped unrun",
			Patches: []Patch{{tombs, "g.gone, any = true, true", "_ = any"}},
			Tests:   []Test{{worker, "TestAStoppedSidecarKeepsItsGatewaysAndPeers"}},
		}, {
			Name:    "stopped-sidecar",
			What:    "a sidecar that was stopped does not take its gateways for silent",
			Patches: []Patch{{core, "> maxPause {", "> 1000*maxPause {"}},
			Tests:   []Test{{worker, "TestAStoppedSidecarKeepsItsGatewaysAndPeers"}},
		}, {
			Name:    "clock-tolerance",
			What:    "a deadline passes 5 s later than a clock says",
			Patches: []Patch{{"sidecar/worker/types.go", ".Add(work.ClockTolerance)", ""}},
			Tests:   []Test{{worker, "TestRandomOperations"}},
		}, {
			Name:    "deadline",
			What:    "work whose deadline has passed is not run",
			Patches: []Patch{{core, "return c.now.After(s.until)", "return false"}},
			Tests:   []Test{{worker, "TestRandomOperations"}},
		}, {
			Name: "runs-alone",
			What: "nothing else is in the server while a slice that ended one runs",
			Patches: []Patch{{
				"sidecar/worker/dispatch.go",
				"\t\tif c.inServer > 0 {\n\t\t\treturn\n\t\t}\n",
				"",
			}},
			Tests: []Test{{worker, "TestRandomOperations"}},
		}, {
			Name:    "other-worker",
			What:    "a slice whose server died here goes to another worker that has the model",
			Patches: []Patch{{intake, "if c.preferOther(it) {", "if false {"}},
			Tests:   []Test{{worker, "TestASliceThatDiedHereIsNotTaken"}},
		},
		// What it does while it has it.
		{
			Name:    "progress-of-the-server",
			What:    "progress acks and marks go on only while the server shows life",
			Patches: []Patch{{core, "if !c.alive(s) {", "if !c.alive(s) && false {"}},
			Tests:   []Test{{worker, "TestMarksNeedSignsOfLife"}},
		}, {
			Name:    "progress-acks",
			What:    "work in hand is not redelivered while the server is at it",
			Patches: []Patch{{core, "\t\t\t\tc.do.progress(d)\n", ""}},
			Tests:   []Test{{worker, "TestMarksNeedSignsOfLife"}},
		}, {
			Name: "server-died",
			What: "what was in a server that died is reported before its message ends",
			Patches: []Patch{{
				server,
				"c.keepEntry(s, &results.Entry{Data: c.markOf(s, work.ServerDied), Died: true})",
				"c.settle(s, c.do.term)\n" +
					"\t\tc.forget(s)\n" +
					"\t\t_, _ = results.Entry{}, work.ServerDied",
			}},
			Tests: []Test{{worker, "TestRandomOperations"}, {worker, "TestServerDies"}},
		}, {
			Name: "new-stream-acks",
			What: "an acknowledgement never goes to another message of a younger stream",
			Patches: []Patch{{
				core,
				"case d.gen != c.gen: // of a stream that is gone\n",
				"case false:\n",
			}},
			Tests: []Test{{worker, "TestRandomOperations"}},
		},
		// What it does with a result.
		{
			Name: "receipt-before-ack",
			What: "a message is acknowledged only after the receipt of its result",
			Patches: []Patch{{
				outcomes,
				"c.keepEntry(s, &results.Entry{Data: data})",
				"c.keepEntry(s, &results.Entry{Data: data})\n" +
					"\tc.settle(s, c.do.ack)",
			}},
			Tests: []Test{{worker, "TestRandomOperations"}},
		}, {
			Name:    "retry-result",
			What:    "a result without a receipt is sent again every 250 ms",
			Patches: []Patch{{"sidecar/results/kept.go", "\t\tk.order = append(k.order, e)\n", ""}},
			Tests:   []Test{{worker, "TestChunksAndRetries"}, {results, "TestKept"}},
		},
		// How programs end.
		{
			Name: "drain-gives-back",
			What: "SIGTERM gives what waits back at once",
			Patches: []Patch{{
				server,
				"c.draining, c.dirty, c.beat.soon = true, true, true\n" +
					"\tc.giveBackQueued()",
				"c.draining, c.dirty, c.beat.soon = true, true, true",
			}},
			Tests: []Test{{worker, "TestADrainGivesBackAtOnce"}},
		}, {
			Name: "drain-late",
			What: "work that comes during a drain is given back",
			Patches: []Patch{{
				intake,
				"if !open || c.draining || !c.responsive() {",
				"if !c.responsive() {",
			}},
			Tests: []Test{{worker, "TestADrainGivesBackAtOnce"}},
		}, {
			Name: "drain-keeps-listening",
			What: "a queue is closed only when no work is on its way",
			Patches: []Patch{{
				"sidecar/pull/pull.go",
				"case len(q.open) == 0, len(q.open) == 1 && q.watching, q.Silent(now):",
				"case true:",
			}},
			Tests: []Test{{"sidecar/pull", "TestCloseLosesNothing"}, {"sidecar/pull", "TestQuiet"}},
		}, {
			Name:    "drain-asks",
			What:    "a queue is closed when the broker, asked, has no work, however late it hears of the pulls",
			Patches: []Patch{{"sidecar/pull/pull.go", "return q.dry", "return true"}},
			Tests:   []Test{{"sidecar/pull", "TestCloseBehindSlowPulls"}},
		}, {
			Name: "abandon",
			What: "what a drain does not finish in its time is given back",
			Patches: []Patch{{
				server, `c.giveBack(s, nakServer, "server")`, "c.forget(s)",
			}},
			Tests: []Test{{worker, "TestADrainHidesNothing"}},
		}, {
			Name:    "abandon-after-pulls",
			What:    "a drain that takes too long ends when the broker knows no pull of it any more",
			Patches: []Patch{{"sidecar/worker/worker.go", "end = time.After(endTimeout)", "w.over = true"}},
			Tests:   []Test{{worker, "TestADrainThatTakesTooLongHidesNothing"}},
		}, {
			Name:    "leave-first",
			What:    "a gateway is not ready any more 2 s before it accepts nothing",
			Patches: []Patch{{"cmd/sie-gateway/serve.go", "g.server.Retire()", "_ = g.server"}},
			Row:     "r1-memory:gateway/term", Sees: "gateway 0",
		}, {
			Name:    "last-of-connection",
			What:    "a gateway that leaves ends each connection with its answer",
			Patches: []Patch{{"internal/httpd/server.go", "{ s.retired.Store(true) }", "{}"}},
			Tests:   []Test{{"gateway/server", "TestRetireThenDrain"}},
		},
	}, controlFixes()...)
}
