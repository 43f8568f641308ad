package bus

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Lane is a group of workers that run the same bundle on the same kind of machine in one pool. The
// empty Lane is none.
type Lane struct {
	Pool    string `json:"pool"`
	Profile string `json:"machineProfile"`
	Bundle  string `json:"bundle"`
}

// String returns "pool/profile/bundle".
func (l Lane) String() string { return l.Pool + "/" + l.Profile + "/" + l.Bundle }

// Compare orders lanes by pool, machine profile and bundle.
func (l Lane) Compare(o Lane) int {
	return cmp.Or(strings.Compare(l.Pool, o.Pool), strings.Compare(l.Profile, o.Profile),
		strings.Compare(l.Bundle, o.Bundle))
}

// Validate returns an error unless each part may be a token of a subject.
func (l Lane) Validate() error {
	for _, x := range []struct{ name, value string }{
		{"pool", l.Pool}, {"machine profile", l.Profile}, {"bundle", l.Bundle},
	} {
		if err := CheckToken(x.name, x.value); err != nil {
			return err
		}
	}
	return nil
}

// maxToken bounds a token of a subject in bytes.
const maxToken = 128

// CheckToken returns an error unless value can be a token of a subject as it is: 1 to 128 bytes of
// visible ASCII without ".", "*" and ">". name says in the error what the value is.
func CheckToken(name, value string) error {
	if value == "" || len(value) > maxToken {
		return fmt.Errorf("%s %q has %d bytes; 1 to %d are allowed", name, value, len(value), maxToken)
	}
	for i := range len(value) {
		if c := value[i]; c <= ' ' || c > '~' || c == '.' || c == '*' || c == '>' {
			return fmt.Errorf("%s %q contains %q; only visible ASCII without '.', '*' and '>' is allowed",
				name, value, c)
		}
	}
	return nil
}

// Token returns the form that a model id has in a subject: "/" becomes "__", "." becomes "_dot_",
// and characters that a subject cannot hold become "_". It is not injective: the id in a message
// must normalise to its subject's token, and wins.
func Token(id string) string {
	var b strings.Builder
	b.Grow(len(id) + 8)
	for _, c := range []byte(id) {
		switch {
		case c == '/':
			b.WriteString("__")
		case c == '.':
			b.WriteString("_dot_")
		case c == '*' || c == '>' || c <= ' ' || c == 0x7f:
			b.WriteByte('_')
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// WorkSubject returns the subject of a lane's work for a model.
func (l Lane) WorkSubject(model string) string {
	return "sie.work." + l.Pool + "." + l.Profile + "." + l.Bundle + "." + Token(model)
}

// DemandSubject returns the subject on which a new consumer of the lane and model is announced.
func (l Lane) DemandSubject(model string) string {
	return "sie.demand." + l.Pool + "." + l.Profile + "." + l.Bundle + "." + Token(model)
}

// ParseWork splits the subject of work into its lane and the model's token. A filter with a
// wildcard in place of the model is no such subject: nobody could follow it without taking the work
// of every model.
func ParseWork(subject string) (l Lane, token string, err error) { return parse("sie.work.", subject) }

// ParseDemand splits the subject of a demand into its lane and the model's token.
func ParseDemand(subject string) (l Lane, token string, err error) {
	return parse("sie.demand.", subject)
}

func parse(prefix, subject string) (l Lane, token string, err error) {
	rest, ok := strings.CutPrefix(subject, prefix)
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 4 || parts[3] == "" || parts[3] != Token(parts[3]) {
		return l, "", fmt.Errorf("subject %q is not %s{pool}.{profile}.{bundle}.{model}", subject, prefix)
	}
	l = Lane{Pool: parts[0], Profile: parts[1], Bundle: parts[2]}
	return l, parts[3], l.Validate()
}

// StreamName returns the name of a pool's work stream.
func StreamName(pool string) string { return "WORK_POOL_" + pool }

// ConsumerName returns the durable name of the consumer of a work subject.
func ConsumerName(subject string) string {
	sum := sha256.Sum256([]byte(subject))
	return "m_" + hex.EncodeToString(sum[:16])
}

// Subjects outside the work streams.
const (
	HealthPrefix    = "sie.health."  // + worker id: WorkerHeartbeat
	GatewayPrefix   = "sie.gateway." // + router id: GatewayHeartbeat
	QuotaPrefix     = "sie.quota."   // + router id: a gateway's quota.Message
	CancelPrefix    = "work_cancel." // + router id + "." + request id: work.Cancel, or empty
	DLQPrefix       = "sie.dlq."     // + token of the model: a dead letter
	DLQStream       = "DEAD_LETTERS"
	GatewayInboxes  = "_INBOX"
	SidecarInboxes  = "_INBOX_WORKER"
	WorkSubjects    = "sie.work.>"
	ConfigAll       = "sie.config.models._all"
	ConfigPrefix    = "sie.config.models." // + bundle
	PoolsBucket     = "SIE_POOLS"          // the key-value bucket of package lease
	PoolsStream     = "KV_" + PoolsBucket
	PoolsSubject    = "$KV." + PoolsBucket + ".pools"
	PoolsChanged    = "sie.pools.changed" // told after each change of it
	PriorityGroup   = "w"                 // of every work consumer
	HeaderMsgID     = "Nats-Msg-Id"
	HeaderTTL       = "Nats-TTL"
	HeaderReserved  = "Nats-"
	healthTokens    = 3
	replyTokenCount = 3
)

// Inbox returns the subject to which the results of a request go.
func Inbox(router, request string) string { return GatewayInboxes + "." + router + "." + request }

// ParseInbox splits the subject of results into router and request id. It refuses every other
// subject, so that work cannot make a sidecar publish elsewhere.
func ParseInbox(subject string) (router, request string, err error) {
	parts := strings.Split(subject, ".")
	if len(parts) != replyTokenCount || parts[0] != GatewayInboxes {
		return "", "", fmt.Errorf("subject %q is not %s.{router}.{request}", subject, GatewayInboxes)
	}
	for i, name := range []string{"router id", "request id"} {
		if err := CheckToken(name, parts[i+1]); err != nil {
			return "", "", err
		}
	}
	return parts[1], parts[2], nil
}

// CancelSubject returns the subject that cancels a request's slices.
func CancelSubject(router, request string) string { return CancelPrefix + router + "." + request }
