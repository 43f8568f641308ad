package main

import (
	"fmt"
	"log/slog"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/runtime/ipc"
	"github.com/sie-engine/sie/runtime/server"
	"github.com/sie-engine/sie/runtime/service"
)

// ipcEntrance is the sidecar's entrance of a server. Its reloader gives it the models of the files;
// those that the sidecar sent stay.
type ipcEntrance struct {
	listener *ipc.Listener
	server   *ipc.Server
	configs  *ipc.Configs
	log      *slog.Logger
}

// openIPC listens at the socket and begins to serve it. opt are the options of the HTTP entrance.
func (c *serveCmd) openIPC(
	w *service.Service, front *server.Server, selected modelSelection, opt server.Options,
) (*ipcEntrance, error) {
	configs := ipc.NewConfigs(w, selected.catalog, selected.bundle, front.SetBundleHash)
	s, err := ipc.New(ipc.Options{
		Service: w, Configs: configs, Limits: opt.Limits, WorkerID: opt.Name, Ready: front.Started,
		Tracer: opt.Tracer, Log: opt.Log, AccessLog: opt.AccessLog,
	})
	if err != nil {
		return nil, err
	}
	l, err := ipc.Listen(c.IPCSocket)
	if err != nil {
		return nil, fmt.Errorf("--ipc-socket: %w", err)
	}
	e := &ipcEntrance{l, s, configs, opt.Log}
	go func() { // ends with close
		if err := s.Serve(l); err != nil {
			opt.Log.Error("the IPC socket failed; sidecars cannot connect any more", "error", err)
		}
	}()
	opt.Log.Info("ipc", "socket", c.IPCSocket)
	return e, nil
}

func (e *ipcEntrance) close() {
	e.server.Close()
	if err := e.listener.Close(); err != nil {
		e.log.Warn("ipc", "error", err)
	}
}

// SetCatalog implements catalogSetter.
func (e *ipcEntrance) SetCatalog(c *catalog.Catalog) (service.Changes, error) {
	return e.configs.SetBase(c)
}

// SetBundleHash implements hashSetter: the configs have told the hash of all models already.
func (e *ipcEntrance) SetBundleHash(string) {}
