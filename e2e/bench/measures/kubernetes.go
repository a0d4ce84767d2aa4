package measures

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reeveproject/reeve/e2e/bench"
	"github.com/reeveproject/reeve/e2e/internal/procfs"
)

// The roles of the plugin kubernetes.
const (
	kubernetesPKI        = "kubernetes-pki"
	kubernetesController = "kubernetes-controller"
	kubernetesWorker     = "kubernetes-worker"
)

// kubernetes is a cluster of one node in a dev directory, with the plugin kubernetes in its catalog: everything is done by the commands that operators have.
type kubernetes struct {
	bed *Bed
	at  place
	// ports are those of kube-apiserver, kube-controller-manager and kube-scheduler.
	ports []int
}

// newKubernetes makes one. close stops it and removes everything.
func (b *Bed) newKubernetes(ctx context.Context, up, grants []string) (k *kubernetes, err error) {
	if _, err := os.Stat(b.Programs.plugin("kubernetes")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the plugin kubernetes was not built (make kubernetes)", bench.ErrCannotRun)
	}
	k = &kubernetes{bed: b}
	if k.at, err = b.place(); err != nil {
		return nil, err
	}
	_, err = k.reeve(ctx, append([]string{"dev", "up", "--detach"}, up...)...)
	if err == nil {
		_, err = k.reeve(ctx, append([]string{"plugin", "add", b.Programs.plugin("kubernetes"), "--approve"}, grants...)...)
	}
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

func (k *kubernetes) close() error {
	// Also when the measure was ended.
	if _, err := k.reeve(context.Background(), "dev", "down"); err != nil {
		k.bed.kept = true
		return fmt.Errorf("what runs in %s was not stopped: `reeve dev down --dir %s`: %w", k.at.work, filepath.Join(k.at.work, "d"), err)
	}
	return k.at.remove()
}

// reeve runs a command, and returns what it printed.
func (k *kubernetes) reeve(ctx context.Context, arguments ...string) (string, error) {
	return k.run(ctx, filepath.Join(k.bed.Programs.Directory, "reeve"), append(arguments, "--dir", filepath.Join(k.at.work, "d"))...)
}

// kubectl runs the plugin's as the cluster's owner.
func (k *kubernetes) kubectl(ctx context.Context, arguments ...string) (string, error) {
	return k.run(ctx, k.bed.Programs.plugin("kubernetes"), append([]string{"kubectl", "--kubeconfig", k.kubeconfig(), "--cache-dir", filepath.Join(k.at.work, "cache")}, arguments...)...)
}

func (k *kubernetes) kubeconfig() string { return filepath.Join(k.at.work, "kubeconfig") }

func (k *kubernetes) run(ctx context.Context, program string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	command.Env = append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Join(k.at.work, "config"))
	// What it starts in the background has nothing of it.
	command.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", command, err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}

// configureController writes the configuration of a control plane at free ports, and returns its file.
func (k *kubernetes) configureController() (string, error) {
	ports, err := freePorts(3)
	if err != nil {
		return "", err
	}
	k.ports = ports
	file := filepath.Join(k.at.work, "controller.json")
	return file, os.WriteFile(file, fmt.Appendf(nil, `{"port": %d, "controllerManagerPort": %d, "schedulerPort": %d}`, ports[0], ports[1], ports[2]), 0o600)
}

// freePorts are ports that nobody listens on, and below those that the kernel gives to whoever asks for any: so nobody takes one before it is used but by its number.
func freePorts(count int) (ports []int, err error) {
	const lowest, highest = 20000, 32000
	for range 1000 {
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(lowest+rand.IntN(highest-lowest))))
		if err != nil {
			continue
		}
		defer func() { _ = listener.Close() }()
		if ports = append(ports, listener.Addr().(*net.TCPAddr).Port); len(ports) == count {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("%d ports below %d are not free", count, highest)
}

// apiClient asks API servers: of the cluster and by hand, which have the same certificates.
type apiClient struct {
	http *http.Client
	host string
}

// apiClient is a client as the owner.
func (k *kubernetes) apiClient(ctx context.Context) (*apiClient, error) {
	said, err := k.reeve(ctx, "kubernetes", "credential")
	if err != nil {
		return nil, err
	}
	var credential struct {
		Status struct {
			Certificate string `json:"clientCertificateData"`
			Key         string `json:"clientKeyData"`
		} `json:"status"`
	}
	if err := json.Unmarshal([]byte(said), &credential); err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair([]byte(credential.Status.Certificate), []byte(credential.Status.Key))
	if err != nil {
		return nil, err
	}
	encoded, err := k.kubectl(ctx, "config", "view", "--raw", "-o", "jsonpath={.clusters[0].cluster.certificate-authority-data}")
	if err != nil {
		return nil, err
	}
	authority, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	return newAPIClient(certificate, authority)
}

func newAPIClient(certificate tls.Certificate, authority []byte) (*apiClient, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, errors.New("there is no certificate of the authority of API servers")
	}
	return &apiClient{host: "127.0.0.1", http: &http.Client{Timeout: patience, Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{certificate}},
	}}}, nil
}

func (c *apiClient) close() { c.http.CloseIdleConnections() }

// ask returns what an answer says, if it is one of success.
func (c *apiClient) ask(ctx context.Context, method string, port int, path, body string) error {
	request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("https://%s%s", net.JoinHostPort(c.host, strconv.Itoa(port)), path), strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	said, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return &answerError{status: response.StatusCode, said: string(said)}
	}
	return nil
}

// answerError is an answer that is not one of success.
type answerError struct {
	status int
	said   string
}

func (e *answerError) Error() string {
	return fmt.Sprintf("the API server answers %d: %.500s", e.status, e.said)
}

// awaitReady waits until an API server says that it is ready, or ended is closed: then there is none any more.
func (c *apiClient) awaitReady(ctx context.Context, port int, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		err := c.ask(ctx, http.MethodGet, port, "/readyz", "")
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("the API server at port %d has ended", port)
		default:
		}
		if wait(ctx, 5*time.Millisecond) != nil {
			return fmt.Errorf("the API server at port %d is not ready: %w", port, err)
		}
	}
}

// byHand is a kube-apiserver as somebody starts it without Reeve: the arguments of the cluster's, with its files, at a store without users.
type byHand struct {
	at        place
	program   string
	arguments []string
	port      int
}

// program is a program of the control plane, which listens at a port.
func program(name string, port int) (procfs.Process, error) {
	all, err := procfs.All()
	if err != nil {
		return procfs.Process{}, err
	}
	for _, process := range all {
		if len(process.Arguments) > 0 && process.Arguments[0] == name && slices.Contains(process.Arguments, fmt.Sprintf("--secure-port=%d", port)) {
			return process, nil
		}
	}
	return procfs.Process{}, fmt.Errorf("%s at port %d does not run, or another user may not look at it", name, port)
}

// newByHand copies the API server of the cluster, which runs.
func (k *kubernetes) newByHand(store string) (*byHand, error) {
	running, err := program("kube-apiserver", k.ports[0])
	if err != nil {
		return nil, err
	}
	at, err := k.bed.place()
	if err != nil {
		return nil, err
	}
	h := &byHand{at: at, program: filepath.Join(at.work, "kube-apiserver")}
	// The keys of the control plane are among the files that it gets, and it is this user.
	if err := os.Chmod(at.work, 0o700); err != nil {
		return nil, errors.Join(err, h.close())
	}
	if err := h.copy(running.Arguments[1:], store); err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, os.Symlink(k.bed.Programs.plugin("kubernetes"), h.program)
}

func (h *byHand) copy(arguments []string, store string) error {
	const certificateFlag = "--tls-cert-file="
	files := ""
	for _, argument := range arguments {
		if file, ok := strings.CutPrefix(argument, certificateFlag); ok {
			files = filepath.Dir(file)
		}
	}
	if files == "" {
		return fmt.Errorf("no %s in %q", certificateFlag, arguments)
	}
	if err := os.CopyFS(filepath.Join(h.at.work, "files"), os.DirFS(files)); err != nil {
		return err
	}
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	h.port = ports[0]
	for _, argument := range arguments {
		switch name, _, _ := strings.Cut(argument, "="); name {
		case "--etcd-servers":
			argument = "--etcd-servers=" + store
		case "--secure-port":
			argument = fmt.Sprintf("--secure-port=%d", h.port)
		}
		h.arguments = append(h.arguments, strings.ReplaceAll(argument, files, filepath.Join(h.at.work, "files")))
	}
	return nil
}

// supervisor is a client as who may do everything at any API server with these files: the one by hand knows nobody else.
func (h *byHand) supervisor() (*apiClient, error) {
	files := filepath.Join(h.at.work, "files")
	certificate, err := tls.LoadX509KeyPair(filepath.Join(files, "supervisor.crt"), filepath.Join(files, "supervisor.key"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(files, "servers-ca.crt"))
	if err != nil {
		return nil, err
	}
	return newAPIClient(certificate, authority)
}

func (h *byHand) close() error { return h.at.remove() }

// start executes it.
func (h *byHand) start() (*process, error) {
	return startProcess(filepath.Join(h.at.work, "log"), nil, h.program, h.arguments...)
}
