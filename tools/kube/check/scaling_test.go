package check

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/sie-engine/sie/tools/kube/render"
)

var intstr0 = intstr.FromInt32(0)

// scaled is a ScaledObject as far as these tests look.
type scaled struct {
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		ScaleTargetRef                    struct{ Kind, Name string }
		IdleReplicaCount, MinReplicaCount *int
		MaxReplicaCount                   int
		Triggers                          []struct {
			Type              string
			Metadata          map[string]string
			AuthenticationRef *struct{ Name string }
		}
	}
}

// The triggers of each lane are those of the file that `sie-gateway dev --autoscale` reads, for the
// lane that its labels name, at an object that is there.
func TestTriggersAreTheSharedFiles(t *testing.T) {
	text, err := os.ReadFile(chartDir + "/files/triggers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, values := range []string{everything, chartDir + "/values-gke.yaml"} {
		docs, _, err := render.Chart(chartDir, render.Options{Values: []string{values}, APIs: render.AllAPIs})
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for _, d := range docs {
			there[d.Kind+" "+d.Name] = true
		}
		lanes := 0
		for _, d := range docs {
			if d.Kind != "ScaledObject" {
				continue
			}
			var s scaled
			if err := json.Unmarshal(d.JSON, &s); err != nil {
				t.Fatal(err)
			}
			if !there[s.Spec.ScaleTargetRef.Kind+" "+s.Spec.ScaleTargetRef.Name] {
				t.Errorf("%s scales %+v, which is not there", d.Name, s.Spec.ScaleTargetRef)
			}
			pool := s.Metadata.Labels["sie.superlinked.com/pool"]
			if pool == "" {
				continue // the gateways
			}
			lanes++
			var want scaled
			filled := text
			for from, to := range map[string]string{
				"LANE_POOL": pool, "LANE_PROFILE": s.Metadata.Labels["sie.superlinked.com/machine-profile"],
				"LANE_BUNDLE": s.Metadata.Labels["sie.superlinked.com/bundle"], "MAX": "10",
			} {
				filled = bytes.ReplaceAll(filled, []byte(from), []byte(to))
			}
			if err := yaml.Unmarshal(filled, &want); err != nil {
				t.Fatal(err)
			}
			if len(s.Spec.Triggers) != len(want.Spec.Triggers) || len(want.Spec.Triggers) < 6 {
				t.Errorf("%s has %d triggers, the file %d", d.Name, len(s.Spec.Triggers),
					len(want.Spec.Triggers))
				continue
			}
			for i, trigger := range s.Spec.Triggers {
				if !strings.HasPrefix(trigger.Metadata["serverAddress"], "http") {
					t.Errorf("%s, trigger %d: %v", d.Name, i, trigger.Metadata)
				}
				if (trigger.AuthenticationRef != nil) != (values == everything) {
					t.Errorf("%s, trigger %d: authentication %v", d.Name, i, trigger.AuthenticationRef)
				}
				delete(trigger.Metadata, "serverAddress")
				delete(trigger.Metadata, "authModes")
				if !reflect.DeepEqual(trigger.Metadata, want.Spec.Triggers[i].Metadata) {
					t.Errorf("%s, trigger %d: %v, want %v", d.Name, i, trigger.Metadata,
						want.Spec.Triggers[i].Metadata)
				}
			}
			if s.Spec.MinReplicaCount == nil || *s.Spec.MinReplicaCount < 1 || s.Spec.MaxReplicaCount < 1 {
				t.Errorf("%s: from %v to %d", d.Name, s.Spec.MinReplicaCount, s.Spec.MaxReplicaCount)
			}
		}
		if lanes < 2 {
			t.Errorf("%s: %d lanes are scaled", values, lanes)
		}
	}
}

// Whoever scales an object says how many there are, and the manifest does not.
func TestScaledObjectsHaveNoReplicas(t *testing.T) {
	for _, apis := range [][]string{nil, render.AllAPIs} {
		docs, _, err := render.Chart(chartDir,
			render.Options{Values: []string{chartDir + "/values-gke.yaml"}, APIs: apis})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range docs {
			var o struct{ Spec struct{ Replicas *int } }
			if err := json.Unmarshal(d.JSON, &o); err != nil {
				t.Fatal(err)
			}
			worker := strings.Contains(d.Name, "-worker-") && d.Kind == "StatefulSet"
			gateway := strings.HasSuffix(d.Name, "-gateway") && d.Kind == "Deployment"
			if want := worker && apis == nil; (worker || gateway) && (o.Spec.Replicas != nil) != want {
				t.Errorf("%d APIs: %s has replicas %v", len(apis), d.String(), o.Spec.Replicas)
			}
		}
	}
}
