// Command hello is a program to try a cluster with: a web server that says on which pod it runs, and a client of such servers. It is in the image reeve.internal/hello, which `make deps-kubernetes` makes,
// since an image from elsewhere takes a registry.
//
//	hello                 serves on port 8080 (PORT in the environment is another one)
//	hello get URL         prints what is there
//	hello lookup NAME     prints the addresses of a name
//	hello hold SIZE       holds so many MiB of memory, and then waits
//	hello show FILE       prints a file
//	hello make FILE       makes an empty file
//	hello remove FILE     removes a file
//
// The server says that it is not well for as long as there is the file that ILL in its environment names.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		stop()
		os.Exit(1)
	}
}

// patience is how long an answer is waited for.
const patience = 10 * time.Second

var errUsage = errors.New("want get URL, lookup NAME, hold SIZE, show, make or remove FILE, or nothing")

func run(ctx context.Context, arguments []string, out io.Writer) error {
	if len(arguments) == 0 {
		return serve(ctx, out)
	}
	if len(arguments) != 2 {
		return errUsage
	}
	switch argument := arguments[1]; arguments[0] {
	case "get":
		return get(ctx, argument, out)
	case "lookup":
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		addresses, err := net.DefaultResolver.LookupHost(ctx, argument)
		if err == nil {
			_, err = fmt.Fprintln(out, strings.Join(addresses, "\n"))
		}
		return err
	case "hold":
		return hold(ctx, argument, out)
	case "show":
		text, err := os.ReadFile(argument)
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	case "make":
		return os.WriteFile(argument, nil, 0o644)
	case "remove":
		return os.Remove(argument)
	}
	return fmt.Errorf("%q: %w", arguments[0], errUsage)
}

func get(ctx context.Context, url string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(out, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// hold takes memory and writes to it, so that it is really there.
func hold(ctx context.Context, size string, out io.Writer) error {
	mib, err := strconv.Atoi(size)
	if err != nil || mib < 0 {
		return fmt.Errorf("%q is no number of MiB", size)
	}
	var held [][]byte
	for n := range mib {
		piece := make([]byte, 1<<20)
		for at := 0; at < len(piece); at += os.Getpagesize() {
			piece[at] = byte(n)
		}
		held = append(held, piece)
	}
	_, _ = fmt.Fprintf(out, "holding %d MiB\n", len(held))
	<-ctx.Done()
	return nil
}

func serve(ctx context.Context, out io.Writer) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(out, "asked by %s\n", r.RemoteAddr)
		_, _ = fmt.Fprintf(w, "hello from %s\n", name)
	})
	ill := os.Getenv("ILL")
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(ill); ill != "" && err == nil {
			http.Error(w, "ill", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	server := &http.Server{Addr: net.JoinHostPort("", port), Handler: mux, ReadHeaderTimeout: patience, BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	_, _ = fmt.Fprintf(out, "%s serves on port %s\n", name, port)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// Who is being answered is, and nobody else.
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	err = server.Shutdown(closing)
	<-ended
	return err
}
