package natscheck

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sie-engine/sie/gateway/broker"
	"github.com/sie-engine/sie/internal/bus"
)

// Passwords are those of the users, by the name of their file.
var Passwords = map[string]string{
	"gateway": "gateway-password-0001", "worker": "worker-password-00001", "config": "config-password-00001",
	"exporter": "exporter-password-001", "route": "route-password-000001",
}

// Inboxes begin the subjects of replies of each user's client.
var Inboxes = map[string]string{
	broker.GatewayUser: bus.GatewayInboxes, broker.WorkerUser: bus.SidecarInboxes,
	broker.ConfigUser: bus.GatewayInboxes, broker.ExporterUser: broker.ExporterInboxes,
}

// PasswordOf returns the password of a user.
func PasswordOf(user string) string { return Passwords[strings.TrimPrefix(user, "sie-")] }

// Users returns the passwords of the programs.
func Users() *broker.Users {
	return &broker.Users{
		Gateway: Passwords["gateway"], Worker: Passwords["worker"], Config: Passwords["config"],
	}
}

// Action is a publish or a subscription.
type Action struct {
	User    string
	Do      string // publish or subscribe
	Subject string
}

// String returns the action in words.
func (a Action) String() string { return a.User + " " + a.Do + " " + a.Subject }

// Server is a NATS server with a chart's configuration. It is safe for concurrent use.
type Server struct {
	URL string
	// Root is a URL for the test's own hand, whose user may do everything and is in no chart.
	Root string

	mu         sync.Mutex
	users      map[string]string // user by number of the connection
	actions    map[Action]int
	violations []string
	nats       *server.Server
}

// rootUser is the test's own.
const rootUser = `{ user: "root", password: "root-password-00000001" }`

// Place says where a server of a chart runs on this machine.
type Place struct {
	Name    string
	Dir     string // for the store
	TLS     string // folder of tls.crt, tls.key and ca.crt, where the chart has TLS
	Client  int    // port for clients, -1 for a free one
	Monitor int    // port for probes, -1 for a free one
	Routes  []int  // ports of all servers among each other; those of a server alone are none
	Index   int    // of this server among them
}

// route is the address of another server of the chart.
var route = regexp.MustCompile(`"nats://\S+-(\d)\.\S+:6222"`)

// Local returns a chart's configuration with what only a pod has replaced: name, addresses, ports
// and folders.
func Local(conf string, p Place) string {
	pairs := []string{
		`listen: "0.0.0.0:4222"`, fmt.Sprintf(`listen: "127.0.0.1:%d"`, p.Client),
		`"0.0.0.0:8222"`, fmt.Sprintf(`"127.0.0.1:%d"`, p.Monitor),
		`"/data"`, fmt.Sprintf("%q", filepath.Join(p.Dir, "data")),
		"/etc/sie/nats-tls", p.TLS, "$POD_NAME", p.Name,
	}
	if len(p.Routes) > 0 {
		pairs = append(pairs, `"0.0.0.0:6222"`, fmt.Sprintf(`"127.0.0.1:%d"`, p.Routes[p.Index]))
		conf = route.ReplaceAllStringFunc(conf, func(url string) string {
			i := route.FindStringSubmatch(url)[1][0] - '0'
			return fmt.Sprintf(`"nats://127.0.0.1:%d"`, p.Routes[i])
		})
	}
	return strings.NewReplacer(pairs...).Replace(conf)
}

// WritePasswords writes the files of all passwords into a folder.
func WritePasswords(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, password := range Passwords {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(password), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Start starts a server with a chart's configuration. It is stopped when the test ends.
func Start(t testing.TB, conf string) *Server {
	t.Helper()
	dir := t.TempDir()
	text := Local(conf, Place{Name: "nats-0", Dir: dir, TLS: dir, Client: -1, Monitor: -1})
	users := strings.Index(text, "users: [")
	if users < 0 {
		t.Fatal("the chart's nats.conf has no users")
	}
	text = text[:users+8] + "\n" + rootUser + text[users+8:]
	if err := WritePasswords(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f := broker.File{Path: path, Passwords: dir}
	o, err := f.Options()
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{users: map[string]string{}, actions: map[Action]int{}}
	if s.nats, err = server.NewServer(o); err != nil {
		t.Fatal(err)
	}
	s.nats.SetLogger(s, false, true)
	s.nats.Start()
	t.Cleanup(func() {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
	})
	if !s.nats.ReadyForConnections(20 * time.Second) {
		t.Fatal("the NATS server did not start")
	}
	s.URL = s.nats.ClientURL()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("root", "root-password-00000001")
	s.Root = u.String()
	return s
}

// Connect returns a connection of a user.
func (s *Server) Connect(t testing.TB, user string) *nats.Conn {
	t.Helper()
	c, err := nats.Connect(s.URL, nats.UserInfo(user, PasswordOf(user)),
		nats.CustomInboxPrefix(Inboxes[user]),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Refuses does an action over a connection of its own and reports whether the server refuses it.
func (s *Server) Refuses(t testing.TB, a Action) bool {
	t.Helper()
	c := s.Connect(t, a.User)
	defer c.Close()
	var err error
	if a.Do == "publish" {
		err = c.Publish(a.Subject, nil)
	} else {
		_, err = c.SubscribeSync(a.Subject)
	}
	if err == nil {
		err = c.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	// The server tells a refusal before it answers the flush.
	return errors.Is(c.LastError(), nats.ErrPermissionViolation)
}

// Actions returns what was done so far.
func (s *Server) Actions() map[Action]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[Action]int{}
	for a, n := range s.actions {
		out[a] = n
	}
	return out
}

// Violations returns what the server refused.
func (s *Server) Violations() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.violations)
}

var (
	connection = regexp.MustCompile(`cid:(\d+)`)
	connects   = regexp.MustCompile(`<<- \[CONNECT .*"user":"([^"]+)"`)
	operation  = regexp.MustCompile(`<<- \[(H?PUB|SUB) (\S+)`)
)

// Tracef takes a line of the protocol, and with it what a client does.
func (s *Server) Tracef(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	cid := connection.FindStringSubmatch(line)
	if cid == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := connects.FindStringSubmatch(line); m != nil {
		s.users[cid[1]] = m[1]
	}
	if m := operation.FindStringSubmatch(line); m != nil && s.users[cid[1]] != "root" {
		do := "publish"
		if m[1] == "SUB" {
			do = "subscribe"
		}
		s.actions[Action{s.users[cid[1]], do, m[2]}]++
	}
}

// Errorf takes an error of the server: a refusal is one.
func (s *Server) Errorf(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if strings.Contains(line, "Violation") || strings.Contains(line, "authentication error") {
		s.mu.Lock()
		s.violations = append(s.violations, line)
		s.mu.Unlock()
	}
}

// Noticef drops a message.
func (s *Server) Noticef(string, ...any) {}

// Warnf drops a message.
func (s *Server) Warnf(string, ...any) {}

// Debugf drops a message.
func (s *Server) Debugf(string, ...any) {}

// Fatalf panics: the server cannot run.
func (s *Server) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
