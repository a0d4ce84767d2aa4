// Package answer makes gRPC statuses of the curator's errors, the same way for every service. It owns nothing and watches nothing.
package answer
