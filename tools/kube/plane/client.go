package plane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig writes a kubeconfig of the user who may do everything into dir, for programs such as
// helm, and returns its path.
func (p *Plane) Kubeconfig(dir string) (string, error) {
	const name = "plane"
	c := api.NewConfig()
	c.Clusters[name] = &api.Cluster{Server: p.Config.Host, InsecureSkipTLSVerify: true}
	c.AuthInfos[name] = &api.AuthInfo{Token: p.Config.BearerToken}
	c.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	text, err := clientcmd.Write(*c)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubeconfig")
	return path, os.WriteFile(path, text, 0o600)
}

// Get returns an object as the server has it, nil if it has none.
func (p *Plane) Get(ctx context.Context, o *unstructured.Unstructured, namespace string) (
	*unstructured.Unstructured, error,
) {
	into, err := p.resource(o, namespace)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Name(o), err)
	}
	now, err := into.Get(ctx, o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return now, err
}

// Labelled returns "Kind name" of all objects that a selector of labels takes, of every kind and
// namespace, sorted.
func (p *Plane) Labelled(ctx context.Context, selector string) ([]string, error) {
	_, lists, err := p.found.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, l := range lists {
		group, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			all, err := p.client.Resource(group.WithResource(r.Name)).List(ctx,
				metav1.ListOptions{LabelSelector: selector})
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", l.GroupVersion, r.Name, err)
			}
			for _, o := range all.Items {
				if o.GetDeletionTimestamp() == nil {
					out = append(out, o.GetKind()+" "+o.GetName())
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil // a kind may be served in two versions
}
