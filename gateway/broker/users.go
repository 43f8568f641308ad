package broker

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/sie-engine/sie/internal/files"
)

// The names of the users.
const (
	WorkerUser   = "sie-worker"
	GatewayUser  = "sie-gateway"
	ConfigUser   = "sie-config"
	ExporterUser = "sie-exporter" // of the system account; a chart's, not of ReadUsers
	routeUser    = "sie-route"
)

// Users holds the passwords of a broker's users: one for each kind of component, and one for the
// other servers of its cluster.
type Users struct {
	Worker  string `json:"worker"`
	Gateway string `json:"gateway"`
	Config  string `json:"config"`
	Route   string `json:"route"`
}

// maxUsersFile bounds the file of Users in bytes.
const maxUsersFile = 64 << 10

// ReadUsers reads the users' passwords from a file that only its owner may read. It makes the file,
// with random passwords, where it does not exist. Several servers that begin at once agree on one
// file: the first that links it into place wins.
func ReadUsers(path string) (*Users, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := makeUsers(path); err != nil {
			return nil, err
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("--auth: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("--auth %s has mode %v: it must be a file that only its owner may read (chmod 600)",
			path, info.Mode())
	}
	text, err := files.Read(path, maxUsersFile)
	if err != nil {
		return nil, fmt.Errorf("--auth: %w", err)
	}
	u := &Users{}
	if err := json.Unmarshal(text, u); err != nil {
		return nil, fmt.Errorf("--auth %s: it is no JSON object of passwords; remove it and start again", path)
	}
	for _, x := range []struct{ name, value string }{
		{"worker", u.Worker}, {"gateway", u.Gateway}, {"config", u.Config}, {"route", u.Route},
	} {
		if len(x.value) < 16 {
			return nil, fmt.Errorf("--auth %s: the password of %q has fewer than 16 characters", path, x.name)
		}
	}
	return u, nil
}

// makeUsers writes new passwords to path, unless another process did so first.
func makeUsers(path string) error {
	text, err := json.Marshal(Users{
		Worker: rand.Text(), Gateway: rand.Text(), Config: rand.Text(), Route: rand.Text(),
	})
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".users-*") // mode 0600
	if err != nil {
		return fmt.Errorf("--auth: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("--auth: %w", err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("--auth: %w", err)
	}
	return nil
}

// nats returns the users as the NATS server takes them.
func (u *Users) nats() (all []*server.User) {
	for _, x := range []struct{ name, password string }{
		{WorkerUser, u.Worker}, {GatewayUser, u.Gateway}, {ConfigUser, u.Config},
	} {
		p := permissions[x.name]
		all = append(all, &server.User{Username: x.name, Password: x.password, Permissions: &p})
	}
	return all
}
