package server

import (
	"encoding/json"
	"os"
	"os/user"
	"time"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/build"
	"github.com/sie-engine/sie/internal/httpd"
)

// status answers GET /ws/status.
func (s *Server) status(r *httpd.Request, rest string) { s.watch.Serve(r, rest) }

// statusFrame makes one frame of /ws/status.
func (s *Server) statusFrame() ([]byte, error) { return json.Marshal(s.statusNow()) }

func (s *Server) statusNow() api.Status {
	st := s.service.Status()
	m := api.Status{
		Timestamp: float64(time.Now().UnixMicro()) / 1e6, Ready: s.isReady(), Saturated: st.Saturated,
		Name: s.opt.Name, MachineProfile: s.opt.MachineProfile, PoolName: s.opt.Pool, Bundle: s.opt.Bundle,
		BundleConfigHash: s.bundleHash(), LoadedModels: st.Loaded, MaxBatchRequests: st.MaxBatchRequests,
		GPUCount: len(st.GPUs), GPUs: st.GPUs, Models: st.Models, Activity: st.Activity,
		Server: api.ServerStatus{
			Version: build.Version, UptimeSeconds: int(time.Since(s.started).Seconds()), PID: os.Getpid(),
		},
	}
	if u, err := user.Current(); err == nil {
		m.Server.User = u.Username
	}
	m.Server.WorkingDir, _ = os.Getwd()
	return m
}
