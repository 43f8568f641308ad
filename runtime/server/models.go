package server

import (
	"os"
	"strings"

	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/dialect"
	"github.com/sie-engine/sie/internal/httpd"
)

func (s *Server) listModels(r *httpd.Request, _ string) {
	r.SetContentType("application/json")
	r.SetBody(api.AppendModelsJSON(nil, s.service.Models()))
}

func (s *Server) getModel(r *httpd.Request, model string) {
	info, err := s.service.Model(model)
	if err != nil {
		s.refuse(r, &call{Call: s.service.Call("models"), kind: dialect.RouteNative}, err)
		return
	}
	r.SetContentType("application/json")
	r.SetBody(api.AppendModelJSON(nil, info))
}

// WorkerName returns the name that a worker reports: the operator's, else the host's.
func WorkerName() string {
	for _, k := range []string{"SIE_WORKER_ID", "HOSTNAME", "POD_NAME"} {
		if v := strings.TrimSpace(os.Getenv(k)); v != "" {
			return v
		}
	}
	h, _ := os.Hostname()
	return h
}
