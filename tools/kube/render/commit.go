package render

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Commit unpacks the chart of a commit of the repository at root below dir, which must be empty,
// and returns where it is. Without a chart in the commit it returns "".
func Commit(ctx context.Context, root, commit, dir string) (string, error) {
	const chart = "deploy/helm/sie-cluster"
	there := exec.CommandContext(ctx, "git", "-C", root, "cat-file", "-e", commit+":"+chart+"/Chart.yaml")
	if there.Run() != nil {
		return "", nil
	}
	archive := filepath.Join(dir, "chart.tar")
	for _, argv := range [][]string{
		{"git", "-C", root, "archive", "-o", archive, commit, chart}, {"tar", "-xf", archive, "-C", dir},
	} {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%v: %w: %s", argv, err, out)
		}
	}
	at := filepath.Join(dir, chart)
	_, err := os.Stat(filepath.Join(at, "Chart.yaml"))
	return at, err
}
