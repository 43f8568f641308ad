package hub_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/sie-engine/sie/weights/hub"
)

// Resolve uses a directory in place. It looks for an id in the cache and then on the hub.
func Example() {
	cache, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(cache)
	resolver, err := hub.New(hub.Options{CacheDir: cache, Offline: true})
	if err != nil {
		log.Fatal(err)
	}
	defer resolver.Close()
	model, err := resolver.Resolve(context.Background(), "../../testdata/golden/st-mean", "")
	if err != nil {
		log.Fatal(err)
	}
	defer model.Release() // until then its files stay on the disk
	fmt.Println(filepath.Base(model.Dir), "is", model.Source)

	_, err = resolver.Resolve(context.Background(), "acme/model", "")
	var why *hub.Error
	if errors.As(err, &why) {
		fmt.Println(why.Model, why.Class)
	}
	// Output:
	// st-mean is local
	// acme/model NOT_FOUND
}

// The settings that Hugging Face's tools share are read from the environment.
func ExampleOptionsFromEnv() {
	env := map[string]string{
		"HF_HUB_CACHE": "/srv/models", "HF_ENDPOINT": "https://mirror.example.com", "HF_HUB_OFFLINE": "1",
	}
	options, err := hub.OptionsFromEnv(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(options.CacheDir, options.Endpoint, options.Offline)
	// Output: /srv/models https://mirror.example.com true
}
