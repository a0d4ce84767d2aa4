package hostapi

import (
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/reeveproject/reeve/proto/hostfile"
)

func refuse(code codes.Code, doing, path, format string, arguments ...any) error {
	return hostfile.Errorf(code, nil, "cannot %s %s: %s", doing, path, fmt.Sprintf(format, arguments...))
}
