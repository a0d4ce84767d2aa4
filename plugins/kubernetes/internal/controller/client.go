package controller

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// askTime is how long a program may take to answer how it is, or the API server to make an object.
const askTime = 5 * time.Second

// maxAnswer is how much of an answer is looked at.
const maxAnswer = 1 << 20

// client asks the programs of this node how they are, and has the API server make objects, as who may everything.
type client struct {
	at   place
	http *http.Client
}

// newClient makes one that proves itself, and knows the programs, by what the files hold when it connects.
func newClient(at place) *client {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		roots, err := os.ReadFile(at.file(fileServersCA))
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(roots) {
			return nil, fmt.Errorf("%s holds no certificate", fileServersCA)
		}
		pair, err := tls.LoadX509KeyPair(at.file(certificate(nameSupervisor)), at.file(key(nameSupervisor)))
		if err != nil {
			return nil, err
		}
		return (&tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}}}).DialContext(ctx, network, address)
	}
	return &client{at: at, http: &http.Client{Timeout: askTime, Transport: &http.Transport{DialTLSContext: dial, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 1}}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// healthy returns nil if what is served at a path says that all is well.
func (c *client) healthy(ctx context.Context, port int, path string) error {
	status, text, err := c.do(ctx, http.MethodGet, c.at.url(port)+path, nil)
	switch {
	case err != nil:
		return err
	case status == http.StatusOK:
		return nil
	}
	// Of a long list of checks those that failed are of interest.
	var failed []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "[-]") {
			failed = append(failed, strings.TrimSpace(line[3:]))
		}
	}
	if len(failed) == 0 {
		return fmt.Errorf("it answers %d", status)
	}
	return fmt.Errorf("it answers %d: %.500s", status, strings.Join(failed, "; "))
}

// create makes an object of the API, unless there is one of its name already.
func (c *client) create(ctx context.Context, port int, path string, object any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	status, answer, err := c.do(ctx, http.MethodPost, c.at.url(port)+path, text)
	if err != nil {
		return err
	}
	if status != http.StatusCreated && status != http.StatusConflict {
		return unexpected(status, answer)
	}
	return nil
}

// fieldManager is as whom the role says what is to be in objects of the API.
const fieldManager = "reeve"

// apply has an object of the API say what this one says, and makes it if there is none (server-side apply). What others have put into it besides stays.
func (c *client) apply(ctx context.Context, port int, path string, object any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	status, answer, err := c.send(ctx, http.MethodPatch, c.at.url(port)+path+"?force=true&fieldManager="+fieldManager, text, http.Header{"Content-Type": {"application/apply-patch+yaml"}})
	if err != nil {
		return err
	}
	if status != http.StatusCreated && status != http.StatusOK {
		return unexpected(status, answer)
	}
	return nil
}

// get reads an object of the API, and reports whether there is one.
func (c *client) get(ctx context.Context, port int, path string, into any) (found bool, err error) {
	status, answer, err := c.do(ctx, http.MethodGet, c.at.url(port)+path, nil)
	switch {
	case err != nil || status == http.StatusNotFound:
		return false, err
	case status != http.StatusOK:
		return false, unexpected(status, answer)
	}
	return true, json.Unmarshal([]byte(answer), into)
}

func unexpected(status int, answer string) error {
	return fmt.Errorf("the API server answers %d: %.500s", status, answer)
}

func (c *client) do(ctx context.Context, method, url string, body []byte) (status int, text string, err error) {
	return c.send(ctx, method, url, body, http.Header{"Content-Type": {"application/json"}})
}

func (c *client) send(ctx context.Context, method, url string, body []byte, header http.Header) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header = header
	response, err := c.http.Do(request)
	if err != nil {
		return 0, "", err
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	_ = response.Body.Close()
	if response.StatusCode == http.StatusUnauthorized {
		// The connection proves itself by a certificate of an authority that was retired since: the next one has the present certificate.
		c.close()
	}
	return response.StatusCode, string(answer), err
}
