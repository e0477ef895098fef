package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	gcaws "gocloud.dev/aws"
	"gocloud.dev/blob/s3blob"
)

// silence is how long a connection to S3 may be without a byte while one is awaited.
const silence = 15 * time.Second

// dialTimeout bounds the making of a connection to S3, and that of its TLS.
const dialTimeout = 5 * time.Second

// attempts is how often the SDK asks, on answers of 500 and above and lost connections: few,
// since who stores a body repeats that by himself.
const attempts = 2

// onePut is up to how many bytes a body is stored by one request: it is in memory already,
// and parts would be copied.
const onePut = 32 << 20

// deletedAtOnce is how many keys one request deletes. Source: the limit of DeleteObjects.
const deletedAtOnce = 1000

// bucket is what is done with S3 beside the driver.
type bucket struct {
	client     *s3.Client
	name       string
	encryption types.ServerSideEncryption // empty: the bucket's own
	key        *string                    // of the key service, nil without
}

// openS3 opens a bucket, s3://bucket. Credentials come from the standard variables, files
// and roles of AWS. In the URL's query: region, endpoint (of a store other than Amazon's,
// http or https), use_path_style and ssetype, kmskeyid, and what gocloud.dev/aws reads.
func (s *Store) openS3(ctx context.Context, u *url.URL) error {
	q := u.Query()
	take := func(name string) string {
		value := q.Get(name)
		q.Del(name)
		return value
	}
	endpoint, encryption, key := take("endpoint"), take("ssetype"), take("kmskeyid")
	pathStyle, err := strconv.ParseBool(orFalse(take("use_path_style")))
	if err != nil {
		return errors.New("use_path_style must be true or false")
	}
	if at, err := url.Parse(endpoint); endpoint != "" && (err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https") {
		return errors.New("the endpoint must be http://host or https://host")
	}
	if u.Host == "" || strings.Trim(u.Path, "/") != "" || u.User != nil {
		return errors.New("want s3://bucket?region=…; credentials belong into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	cfg, err := gcaws.V2ConfigFromURLParams(ctx, q)
	if err != nil {
		return errors.New("a parameter of the URL, or what the AWS variables and files say, is not valid")
	}
	if cfg.Region == "" {
		return errors.New("the region is missing: add region=… to the URL or set AWS_REGION")
	}
	cfg.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(boundTransport)
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = pathStyle
		o.RetryMaxAttempts = attempts
		o.DisableLogOutputChecksumValidationSkipped = true // of bodies stored in parts: a line for each read
		if endpoint != "" {
			o.BaseEndpoint = aws.String(endpoint)
		}
	})
	s.s3 = &bucket{client: client, name: u.Host, encryption: types.ServerSideEncryption(encryption)}
	if key != "" {
		s.s3.key = aws.String(key)
	}
	s.bucket, err = s3blob.OpenBucket(ctx, client, u.Host, &s3blob.Options{RequestChecksumCalculation: cfg.RequestChecksumCalculation,
		EncryptionType: s.s3.encryption, KMSEncryptionID: key})
	return err
}

func orFalse(text string) string {
	if text == "" {
		return "false"
	}
	return text
}

// boundTransport sees to it that no connection waits for ever: the SDK has no limits of
// its own.
func boundTransport(t *http.Transport) {
	dialer := &net.Dialer{Timeout: dialTimeout}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &boundConn{c, silence}, nil
	}
	t.TLSHandshakeTimeout = dialTimeout
	t.MaxIdleConnsPerHost = 64
}

// boundConn is a connection that breaks after silence.
type boundConn struct {
	net.Conn
	silence time.Duration
}

// Read waits for silence at most.
func (c *boundConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write waits for silence at most, and lets a Read that awaits the answer wait on.
func (c *boundConn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.silence)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// put stores a body of a known size by one request.
func (b *bucket) put(ctx context.Context, key string, body io.ReadSeeker, size int64) error {
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String(b.name), Key: aws.String(key), Body: body,
		ContentLength: aws.Int64(size), ContentType: aws.String(contentType), ServerSideEncryption: b.encryption, SSEKMSKeyId: b.key})
	return err
}

// remove deletes objects, whether they are there or not, and gives those that were not
// deleted.
func (b *bucket) remove(ctx context.Context, keys []string) (failed []string, err error) {
	for len(keys) > 0 {
		some := keys[:min(len(keys), deletedAtOnce)]
		keys = keys[len(some):]
		objects := make([]types.ObjectIdentifier, len(some))
		for i, key := range some {
			objects[i].Key = aws.String(key)
		}
		out, oneErr := b.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: aws.String(b.name),
			Delete: &types.Delete{Objects: objects, Quiet: aws.Bool(true)}})
		if oneErr != nil {
			return append(append(failed, some...), keys...), errors.Join(err, oneErr)
		}
		for _, e := range out.Errors {
			failed = append(failed, aws.ToString(e.Key))
			err = &smithy.GenericAPIError{Code: aws.ToString(e.Code), Message: aws.ToString(e.Message)}
		}
	}
	return failed, err
}

// abortUnfinished ends uploads in parts that began before a time: their parts take room,
// and cost, until then.
func (b *bucket) abortUnfinished(ctx context.Context, before time.Time) error {
	pages := s3.NewListMultipartUploadsPaginator(b.client, &s3.ListMultipartUploadsInput{Bucket: aws.String(b.name)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, u := range page.Uploads {
			if !aws.ToTime(u.Initiated).Before(before) {
				continue
			}
			_, err := b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: aws.String(b.name), Key: u.Key, UploadId: u.UploadId})
			var gone *types.NoSuchUpload
			if err != nil && !errors.As(err, &gone) {
				return fmt.Errorf("end an upload: %w", err)
			}
		}
	}
	return nil
}

// codeOf is the code by which S3 says what is wrong, and the status of its answer; empty
// and 0 when it did not answer.
func codeOf(err error) (code string, status int) {
	var said smithy.APIError
	if errors.As(err, &said) {
		code = said.ErrorCode()
	}
	var answer *awshttp.ResponseError
	if errors.As(err, &answer) {
		status = answer.HTTPStatusCode()
	}
	return code, status
}
