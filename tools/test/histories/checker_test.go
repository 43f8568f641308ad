package histories

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// op is an operation of a planted history, that lasts from one time to another.
type op struct {
	from, until   int64
	input, output any
}

func plant(list []op) (h []porcupine.Operation) {
	for i, o := range list {
		h = append(h, porcupine.Operation{ClientId: i, Input: o.input, Output: o.output, Call: o.from,
			Return: o.until})
	}
	return h
}

const a, b = content("32:default"), content("64:default")

func docs(first content) (all [ids]content) {
	all[0] = first
	return all
}

// What no order of calls explains is seen, and what one explains is not.
func TestTheCheckerSeesWhatIsWrong(t *testing.T) {
	put := func(c content) configCall { return configCall{do: "put", content: c} }
	remove := configCall{do: "delete"}
	dry := configCall{do: "put", dry: true, content: a}
	export, epoch, list := configCall{do: "export"}, configCall{do: "epoch"}, configCall{do: "list"}
	done := func(n uint64) configAnswer { return configAnswer{status: 200, epoch: n, changed: true} }
	same := func(n uint64) configAnswer { return configAnswer{status: 200, epoch: n} }
	shows := func(n uint64, c content) configAnswer { return configAnswer{epoch: n, docs: docs(c)} }
	open := configAnswer{}
	for name, x := range map[string]struct {
		list []op
		want porcupine.CheckResult
	}{
		"in order": {[]op{{1, 2, put(a), done(1)}, {3, 4, export, shows(1, a)}}, porcupine.Ok},
		"a lost write": {[]op{{1, 2, put(a), done(1)}, {3, 4, export, shows(0, "")}},
			porcupine.Illegal},
		"a write without epoch": {[]op{{1, 2, put(a), done(1)}, {3, 4, export, shows(0, a)}},
			porcupine.Illegal},
		"an epoch without write": {[]op{{1, 2, put(a), done(1)}, {3, 4, put(b), done(2)},
			{5, 6, export, shows(2, a)}}, porcupine.Illegal},
		"twice": {[]op{{1, 2, put(a), done(1)}, {3, 4, export, shows(2, a)}}, porcupine.Illegal},
		"two writes of one epoch": {[]op{{1, 2, put(a), done(1)}, {3, 4, put(b), done(1)}},
			porcupine.Illegal},
		"unchanged that changes": {[]op{{1, 2, put(a), done(1)}, {3, 4, put(a), done(2)}},
			porcupine.Illegal},
		"unchanged":            {[]op{{1, 2, put(a), done(1)}, {3, 4, put(a), same(1)}}, porcupine.Ok},
		"nothing to delete":    {[]op{{1, 2, remove, same(0)}}, porcupine.Ok},
		"deleted from nothing": {[]op{{1, 2, remove, done(1)}}, porcupine.Illegal},
		"an open write that happened": {[]op{{1, forever, put(a), open}, {3, 4, put(b), done(2)},
			{5, 6, list, shows(1, a)}}, porcupine.Ok},
		"an open write that did not": {[]op{{1, forever, put(a), open}, {3, 4, put(b), done(1)},
			{5, 6, export, shows(1, b)}}, porcupine.Ok},
		"an open write too early": {[]op{{1, 2, export, shows(1, a)}, {3, forever, put(a), open}},
			porcupine.Illegal},
		"a dry run":            {[]op{{1, 2, dry, done(0)}, {3, 4, epoch, configAnswer{}}}, porcupine.Ok},
		"a dry run that wrote": {[]op{{1, 2, dry, done(0)}, {3, 4, export, shows(0, a)}}, porcupine.Illegal},
		"a deletion that stays": {[]op{{1, 2, put(a), done(1)}, {3, 4, remove, done(2)},
			{5, 6, list, shows(2, a)}}, porcupine.Illegal},
		"an older state": {[]op{{1, 2, put(a), done(1)}, {3, 4, put(b), done(2)},
			{5, 6, list, shows(1, a)}}, porcupine.Ok},
		"a state of two epochs": {[]op{{1, 2, put(a), done(1)}, {3, 4, put(b), done(2)},
			{5, 6, list, shows(1, b)}}, porcupine.Illegal},
		"a state to come": {[]op{{1, 2, list, shows(1, a)}, {3, 4, put(a), done(1)}}, porcupine.Illegal},
	} {
		if got, _, _ := checkConfigs(plant(x.list), 0); got != x.want {
			t.Errorf("models, %s: %s, want %s", name, got, x.want)
		}
	}

	make1 := poolCall{do: "put", ttl: 700}
	make2 := poolCall{do: "put", ttl: 800}
	wrote := poolCall{do: "wrote", ttl: 700}
	renew, drop := poolCall{do: "renew"}, poolCall{do: "delete"}
	get, elsewhere := poolCall{do: "get"}, poolCall{do: "get", gateway: 1}
	ok, none := poolAnswer{status: 200}, poolAnswer{status: 404}
	ttl := func(n int) poolAnswer { return poolAnswer{200, n} }
	for name, x := range map[string]struct {
		list []op
		want porcupine.CheckResult
	}{
		"in order": {[]op{{1, 2, make1, ok}, {3, 4, get, ttl(700)}, {5, 6, renew, ok}, {7, 8, drop, ok},
			{9, 10, get, ttl(0)}}, porcupine.Ok},
		"a lost pool": {[]op{{1, 2, make1, ok}, {3, 4, renew, none}}, porcupine.Illegal},
		"a pool comes back": {[]op{{1, 2, make1, ok}, {3, 4, drop, ok}, {5, 6, renew, ok}},
			porcupine.Illegal},
		"deleted twice": {[]op{{1, 2, make1, ok}, {3, 4, drop, ok}, {5, 6, drop, ok}},
			porcupine.Illegal},
		"its own write not shown": {[]op{{1, 2, make1, ok}, {3, 3, wrote, none},
			{4, 5, get, ttl(0)}}, porcupine.Illegal},
		"its write is not answered yet": {[]op{{1, 6, make1, ok}, {2, 3, renew, ok},
			{4, 5, get, ttl(0)}, {7, 7, wrote, none}}, porcupine.Ok},
		"another gateway is behind": {[]op{{1, 2, make1, ok}, {3, 4, elsewhere, ttl(0)},
			{5, 6, elsewhere, ttl(700)}}, porcupine.Ok},
		"a gateway goes back": {[]op{{1, 2, make1, ok}, {3, 4, elsewhere, ttl(700)},
			{5, 6, elsewhere, ttl(0)}}, porcupine.Illegal},
		"an older spec": {[]op{{1, 2, make1, ok}, {3, 4, make2, ok}, {5, 6, elsewhere, ttl(800)},
			{7, 8, elsewhere, ttl(700)}}, porcupine.Illegal},
		"an open call that happened": {[]op{{1, forever, make1, poolAnswer{}}, {3, 4, get, ttl(700)}},
			porcupine.Ok},
		"an open call that did not": {[]op{{1, forever, make1, poolAnswer{}}, {3, 4, drop, none}},
			porcupine.Ok},
		"what nobody made": {[]op{{1, 2, get, ttl(700)}}, porcupine.Illegal},
	} {
		if got := porcupine.CheckOperationsTimeout(poolModel, plant(x.list), patience); got != x.want {
			t.Errorf("pools, %s: %s, want %s", name, got, x.want)
		}
	}
}
