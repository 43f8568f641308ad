package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Workload is a Deployment or a StatefulSet with its pods.
type Workload struct {
	Name     string
	Service  *Service // nil: its pods take no connections
	Replicas int
	Pods     []*Pod // that are not being deleted, the oldest first

	kubelet  *Kubelet
	template corev1.PodSpec
	settle   time.Duration // a pod is available when it has been ready for so long
	ordered  bool          // a StatefulSet: one after the other, with names that stay
	recreate bool          // all go before the first comes
	surge    int           // pods above Replicas
	missing  int           // pods below Replicas
	count    int
}

// NewDeployment returns a workload without pods.
func (k *Kubelet) NewDeployment(d *appsv1.Deployment, s *Service) (*Workload, error) {
	w := &Workload{Name: d.Name, Service: s, Replicas: replicas(d.Spec.Replicas), kubelet: k,
		template: d.Spec.Template.Spec, settle: time.Duration(d.Spec.MinReadySeconds) * time.Second}
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		w.recreate = true
		return w, nil
	}
	surge, missing := intstr.FromString("25%"), intstr.FromString("25%")
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		if r.MaxSurge != nil {
			surge = *r.MaxSurge
		}
		if r.MaxUnavailable != nil {
			missing = *r.MaxUnavailable
		}
	}
	var err error
	if w.surge, err = intstr.GetScaledValueFromIntOrPercent(&surge, w.Replicas, true); err != nil {
		return nil, err
	}
	w.missing, err = intstr.GetScaledValueFromIntOrPercent(&missing, w.Replicas, false)
	if w.surge == 0 && w.missing == 0 {
		w.missing = 1 // as the controller has it
	}
	return w, err
}

// NewStatefulSet returns a workload without pods.
func (k *Kubelet) NewStatefulSet(s *appsv1.StatefulSet, behind *Service) *Workload {
	return &Workload{Name: s.Name, Service: behind, Replicas: replicas(s.Spec.Replicas),
		kubelet: k, ordered: true, template: s.Spec.Template.Spec,
		settle: time.Duration(s.Spec.MinReadySeconds) * time.Second}
}

func replicas(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// Use makes pods that start from now on of another template.
func (w *Workload) Use(template corev1.PodSpec) { w.template = template }

// start starts a pod with a name.
func (w *Workload) start(name string) (*Pod, error) {
	p, err := w.kubelet.Run(name, w.template)
	if err != nil {
		return nil, err
	}
	if w.Service != nil {
		w.Service.Add(p)
	}
	return p, nil
}

func (w *Workload) name() string {
	w.count++
	return fmt.Sprintf("%s-%d", w.Name, w.count-1)
}

// Start starts all pods and waits until they are ready.
func (w *Workload) Start(ctx context.Context) error {
	for range w.Replicas {
		p, err := w.start(w.name())
		if err != nil {
			return err
		}
		w.Pods = append(w.Pods, p)
	}
	for _, p := range w.Pods {
		if err := w.available(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// available waits until a pod has been ready for as long as the workload asks.
func (w *Workload) available(ctx context.Context, p *Pod) error {
	since := time.Now()
	for {
		if !p.Ready() {
			since = time.Now()
		} else if time.Since(since) >= w.settle {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pod %s is not ready: %w", p.Name, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// remove deletes a pod and returns what is closed when it is gone.
func (w *Workload) remove(p *Pod) <-chan struct{} {
	if w.Service != nil {
		w.Service.Remove(p)
	}
	w.Pods = slices.DeleteFunc(w.Pods, func(o *Pod) bool { return o == p })
	return p.Delete()
}

// Roll replaces every pod in the way of the workload, and waits until the last old one is gone.
func (w *Workload) Roll(ctx context.Context) error {
	old := slices.Clone(w.Pods)
	var leaving []<-chan struct{}
	wait := func() error {
		for _, gone := range leaving {
			select {
			case <-gone:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	switch {
	case w.ordered:
		slices.Reverse(old)
		for _, p := range old {
			leaving = append(leaving, w.remove(p))
			if err := wait(); err != nil {
				return err
			}
			fresh, err := w.start(p.Name)
			if err != nil {
				return err
			}
			w.Pods = append(w.Pods, fresh)
			if err := w.available(ctx, fresh); err != nil {
				return err
			}
		}
		return nil
	case w.recreate:
		for _, p := range old {
			leaving = append(leaving, w.remove(p))
		}
		if err := wait(); err != nil {
			return err
		}
		return w.Start(ctx)
	}
	for range min(w.missing, len(old)) {
		leaving = append(leaving, w.remove(old[0]))
		old = old[1:]
	}
	for fresh := 0; fresh < w.Replicas || len(old) > 0; {
		var coming []*Pod
		for fresh < w.Replicas && len(w.Pods) < w.Replicas+w.surge {
			p, err := w.start(w.name())
			if err != nil {
				return err
			}
			w.Pods, coming, fresh = append(w.Pods, p), append(coming, p), fresh+1
		}
		for _, p := range coming {
			if err := w.available(ctx, p); err != nil {
				return err
			}
		}
		for len(old) > 0 && len(w.Pods) > w.Replicas-w.missing {
			leaving = append(leaving, w.remove(old[0]))
			old = old[1:]
		}
	}
	return wait()
}
