package bus

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Options configures a connection.
type Options struct {
	URL  string // of one or more servers, separated by commas
	Name string // of the component, shown by the broker
	Access
	Inboxes string // prefix of the subjects for replies: GatewayInboxes or SidecarInboxes
	Log     *slog.Logger

	// Connected and Disconnected are called on each change, one at a time, nil for none. They must
	// return at once.
	Connected, Disconnected func()
}

// The times of a connection. A dead broker is noticed by its silence after about 4 s.
const (
	connectTimeout = 2 * time.Second
	reconnectWait  = 100 * time.Millisecond
	pingInterval   = 2 * time.Second
	maxPings       = 2

	// A publisher waits this long for a broker that takes nothing, with the lock of the connection:
	// not even its silence is noticed meanwhile.
	writeTimeout = 4 * time.Second
)

// Connect returns a connection that is made, and made anew, in the background for as long as it is
// open. A publish while there is no connection fails at once: nothing that was reported as failed
// is sent later (the reconnect buffer is off).
func Connect(o Options) (*nats.Conn, error) {
	access, err := o.Access.ClientOptions()
	if err = errors.Join(checkURLs(o.URL), err); err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	call := func(f func()) {
		if f != nil {
			f()
		}
	}
	var refusals seldom
	opts := []nats.Option{
		nats.Name(o.Name), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait, reconnectWait),
		nats.Timeout(connectTimeout), nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(maxPings),
		nats.FlusherTimeout(writeTimeout), nats.ReconnectOnFlusherError(),
		nats.ReconnectBufSize(-1), nats.CustomInboxPrefix(o.Inboxes),
		// A password may be changed there first, and here later.
		nats.IgnoreAuthErrorAbort(),
		nats.ConnectHandler(func(*nats.Conn) { call(o.Connected) }),
		nats.ReconnectHandler(func(c *nats.Conn) {
			o.Log.Info("NATS is connected again", "server", c.ConnectedUrlRedacted())
			call(o.Connected)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				o.Log.Warn("NATS is away; connecting again", "error", err)
			}
			call(o.Disconnected)
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			} else if errors.Is(err, nats.ErrAuthorization) && !refusals.due() {
				return // at each of many tries
			}
			o.Log.Warn("NATS", "error", err, "subject", subject)
		}),
	}
	opts = append(opts, access...)
	go probe(o, opts)
	c, err := nats.Connect(o.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("bus: connect to NATS: %w", err)
	}
	return c, nil
}

// probe tries to connect once, and logs why that fails: nats.go does not tell it of the tries
// before the first success. It ends within connectTimeout for each server.
func probe(o Options, opts []nats.Option) {
	once := append(slices.Clone(opts), nats.RetryOnFailedConnect(false), nats.NoReconnect(),
		nats.ConnectHandler(nil), nats.ReconnectHandler(nil), nats.DisconnectErrHandler(nil),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	c, err := nats.Connect(o.URL, once...)
	var unknown x509.UnknownAuthorityError
	switch {
	case err == nil:
		c.Close()
	case errors.Is(err, nats.ErrAuthorization):
		o.Log.Error("NATS refuses the user or the password; trying again", "user", o.User)
	case errors.As(err, &unknown):
		o.Log.Error("the certificate of NATS is of an authority that is not trusted: "+
			"give its file as SIE_NATS_CA; trying again", "error", err)
	case errors.Is(err, nats.ErrSecureConnWanted):
		o.Log.Error("NATS does not encrypt: leave out tls://, SIE_NATS_CA and SIE_NATS_CERT, " +
			"or switch TLS on there; trying again")
	default:
		o.Log.Warn("NATS cannot be reached yet; trying again", "error", err)
	}
}

// seldom lets something happen once in a while. Safe for concurrent use.
type seldom struct{ last atomic.Int64 }

// seldomEvery is the least time between two times that a seldom thing is due.
const seldomEvery = 10 * time.Second

func (s *seldom) due() bool {
	now, last := time.Now().UnixNano(), s.last.Load()
	return (last == 0 || now-last >= int64(seldomEvery)) && s.last.CompareAndSwap(last, now)
}
