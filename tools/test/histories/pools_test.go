package histories

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// pools is how many pools clients call about.
const pools = 4

// poolName returns the name of a pool.
func poolName(i int) string { return fmt.Sprintf("p%d", i) }

// poolCall is a call about one pool.
type poolCall struct {
	do      string // put, renew, delete, get, or wrote: the answer of a put has come
	pool    int
	gateway int
	ttl     int // of put; no two have the same
}

// poolAnswer is what came of it: the status, 0 without an answer, and of get the TTL.
type poolAnswer struct{ status, ttl int }

// poolState is all TTLs that a pool had, 0 for no pool, and the newest that each gateway has shown
// for certain.
type poolState struct {
	ttls  string // with a comma behind each
	count int
	last  int
	shown [3]int // how many of ttls lie before it
}

func (s poolState) then(ttl int) poolState {
	s.ttls, s.count, s.last = fmt.Sprintf("%s%d,", s.ttls, ttl), s.count+1, ttl
	return s
}

// poolModel is one pool behind three gateways. Changes happen in one order. What a gateway shows is
// one of the TTLs that the pool had, none older than what it showed before, or than what it has
// said to have written: a put has happened at some time before its answer, and is shown from that
// on.
var poolModel = porcupine.Model{
	Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
		out := make([][]porcupine.Operation, pools)
		for _, o := range h {
			i := o.Input.(poolCall).pool
			out[i] = append(out[i], o)
		}
		return out
	},
	Init: func() any { return poolState{ttls: "0,", count: 1} },
	Step: func(state, input, output any) (bool, any) {
		s, c, got := state.(poolState), input.(poolCall), output.(poolAnswer)
		if c.do == "get" {
			for i, ttl := range strings.Split(s.ttls, ",")[:s.count] {
				if i >= s.shown[c.gateway] && ttl == fmt.Sprint(got.ttl) {
					s.shown[c.gateway] = i
					return true, s
				}
			}
			return false, s
		}
		if c.do == "wrote" {
			i := slices.Index(strings.Split(s.ttls, ",")[:s.count], fmt.Sprint(c.ttl))
			s.shown[c.gateway] = max(s.shown[c.gateway], i)
			return i >= 0, s
		}
		there := s.last != 0
		switch {
		case c.do == "put":
			s = s.then(c.ttl)
		case got.status == 404 || got.status == 0 && !there:
			return !there, s
		case !there:
			return false, s
		case c.do == "delete":
			s = s.then(0)
		}
		return true, s
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

// callPools makes, renews, deletes and reads pools until the faults have ended.
func (c *client) callPools() {
	for !c.over() {
		call := poolCall{pool: c.r.IntN(pools), gateway: c.r.IntN(3),
			ttl: 600 + int(c.ttls.Add(1))%3000}
		call.do = []string{"put", "put", "renew", "delete", "delete"}[c.r.IntN(5)]
		c.callPool(call)
		c.rest()
	}
}

// callPool makes a call that changes a pool and returns the status of its answer, 0 for none.
func (c *client) callPool(call poolCall) int {
	method, path, body := "POST", "/v1/pools", ""
	switch call.do {
	case "put":
		body = fmt.Sprintf(`{"name":%q,"gpus":{"l4":1},"ttl_seconds":%d}`, poolName(call.pool), call.ttl)
	case "renew":
		path += "/" + poolName(call.pool) + "/renew"
	default:
		method, path = "DELETE", path+"/"+poolName(call.pool)
	}
	from := c.pools.now()
	status, answer, o := c.ask(call.gateway, method, path, "", body)
	switch {
	case status >= 400 && (status != 404 || !strings.Contains(string(answer), "POOL_NOT_FOUND")),
		status == 404 && call.do == "put":
		c.t.Errorf("%+v: %d %.300s", call, status, answer)
		return status
	case call.do != "put":
		call.ttl = 0
	}
	c.pools.add(c.id, from, call, poolAnswer{status: status}, o)
	if call.do == "put" && o == told {
		call.do = "wrote"
		c.pools.add(c.id, c.pools.now(), call, poolAnswer{}, told)
	}
	return status
}

// readPools reads the pools of a gateway until the faults have ended.
func (c *client) readPools(gateway int) {
	for !c.over() {
		c.getPools(gateway, c.r.IntN(2) == 0)
		c.rest()
	}
}

// getPools reads all pools at once, or one after the other, and returns their TTLs; nil without an
// answer.
func (c *client) getPools(gateway int, whole bool) []int {
	type pool struct {
		Name string
		Spec struct {
			TTL int `json:"ttl_seconds"`
		}
	}
	ttls := make([]int, pools)
	from := c.pools.now()
	if whole {
		status, answer, o := c.ask(gateway, "GET", "/v1/pools", "", "")
		if o != told {
			return nil
		}
		var a struct{ Pools []pool }
		if err := json.Unmarshal(answer, &a); err != nil || status != 200 {
			c.t.Errorf("pools of gateway %d: %d %.300s", gateway, status, answer)
			return nil
		}
		for i := range ttls {
			at := slices.IndexFunc(a.Pools, func(p pool) bool { return p.Name == poolName(i) })
			if at >= 0 {
				ttls[i] = a.Pools[at].Spec.TTL
			}
			call := poolCall{do: "get", pool: i, gateway: gateway}
			c.pools.add(c.id, from, call, poolAnswer{200, ttls[i]}, told)
		}
		return ttls
	}
	for i := range ttls {
		from := c.pools.now()
		status, answer, o := c.ask(gateway, "GET", "/v1/pools/"+poolName(i), "", "")
		if o != told {
			return nil
		}
		var a pool
		if err := json.Unmarshal(answer, &a); err != nil || status != 200 && status != 404 {
			c.t.Errorf("pool %d of gateway %d: %d %.300s", i, gateway, status, answer)
			return nil
		}
		ttls[i] = a.Spec.TTL
		call := poolCall{do: "get", pool: i, gateway: gateway}
		c.pools.add(c.id, from, call, poolAnswer{200, ttls[i]}, told)
	}
	return ttls
}

// lastPools asks what became of each pool, in a way that no earlier answer can serve, and waits
// until all gateways show it.
func (c *client) lastPools() {
	there := make([]bool, pools)
	for i := range there {
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			status := c.callPool(poolCall{do: "renew", pool: i, gateway: i % 3})
			if there[i] = status == 200; status != 0 {
				break
			}
			if time.Now().After(end) {
				c.t.Fatalf("pool %d cannot be renewed after %v", i, patience)
			}
		}
	}
	for g := range 3 {
		c.until(fmt.Sprintf("gateway %d shows the pools %v", g, there), func() bool {
			ttls := c.getPools(g, true)
			same := ttls != nil
			for i := range ttls {
				same = same && (ttls[i] != 0) == there[i]
			}
			return same
		})
	}
}
