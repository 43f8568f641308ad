// Command fake-gcs-server imitates Google Cloud Storage over HTTP with the packages of the program
// of this name, for tests. It keeps objects as files, and speaks no gRPC.
package main

import (
	"flag"
	"log"
	"net/http"
	"os"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

func main() {
	address := flag.String("address", "127.0.0.1:4443", "host:port to listen at")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: fake-gcs-server --address HOST:PORT DIRECTORY")
	}
	// Each folder of the directory is a bucket.
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		StorageRoot: flag.Arg(0), Scheme: "http", NoListener: true, Writer: os.Stderr,
		ExternalURL: "http://" + *address, PublicHost: *address,
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(*address, server.HTTPHandler()))
}
