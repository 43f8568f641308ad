// Command versitygw serves S3 over a directory with the packages of the program of this name, for
// tests. Of that program it has one backend and one account, and no flags that tests do not set.
package main

import (
	"flag"
	"log"
	"os"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
)

// What the program of this name takes where no flag says otherwise.
const (
	region         = "us-east-1"
	maxConnections = 250_000
	maxRequests    = 100_000
	maxParts       = 10_000
	maxActions     = 5_000
	ioBuffer       = 1 << 20
	maxCopied      = 5 << 30
)

func main() {
	address := flag.String("address", "127.0.0.1:7070", "host:port to listen at")
	sidecar := flag.String("sidecar", "", "directory of what S3 knows of an object beside its bytes")
	flag.Parse()
	if flag.NArg() != 1 || *sidecar == "" {
		log.Fatal("usage: versitygw --address HOST:PORT --sidecar DIRECTORY DIRECTORY")
	}
	if err := serve(*address, *sidecar, flag.Arg(0)); err != nil {
		log.Fatal(err)
	}
}

// serve answers at address until it fails. Each folder of root is a bucket.
func serve(address, sidecar, root string) error {
	user := middlewares.RootUserConfig{
		Access: os.Getenv("ROOT_ACCESS_KEY"), Secret: os.Getenv("ROOT_SECRET_KEY"),
	}
	beside, err := meta.NewSideCar(sidecar)
	if err != nil {
		return err
	}
	options := posix.PosixOpts{
		SideCarDir: sidecar, Concurrency: maxActions, IOBufferSize: ioBuffer, CopyObjectThreshold: maxCopied,
	}
	files, err := posix.New(root, beside, options)
	if err != nil {
		return err
	}
	account := auth.NewIAMServiceSingle(auth.Account{
		Access: user.Access, Secret: user.Secret, Role: auth.RoleAdmin,
	})
	server, err := s3api.New(files, user, region, account, nil, nil, nil, nil,
		s3api.WithConcurrencyLimiter(maxConnections, maxRequests), s3api.WithMpMaxParts(maxParts),
		s3api.WithAdminServer(), s3api.WithQuiet())
	if err != nil {
		return err
	}
	return server.ServeMultiPort([]string{address})
}
