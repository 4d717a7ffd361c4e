import java.lang.reflect.Method;
import java.util.HashSet;
import java.util.Set;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.Descriptor;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.EnumDescriptor;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.EnumValueDescriptor;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.FieldDescriptor;
import org.apache.hadoop.thirdparty.protobuf.Descriptors.FileDescriptor;

/**
 * Prints the messages and enumerations of Hadoop's generated classes, and of every file that these import, a line each:
 *
 * <pre>
 * field MESSAGE NUMBER LABEL TYPE NAME [MESSAGE or ENUMERATION of the field]
 * value ENUMERATION NUMBER NAME
 * </pre>
 *
 * A repeated field that is packed has the label "packed". Names are without their package.
 */
public class Descriptors {
    private static final Set<String> printed = new HashSet<>();

    public static void main(String[] classes) throws Exception {
        for (String name : classes) {
            Method descriptor = Class.forName(name).getMethod("getDescriptor");
            print((FileDescriptor) descriptor.invoke(null));
        }
    }

    private static void print(FileDescriptor file) {
        if (!printed.add(file.getFullName())) return;
        file.getDependencies().forEach(Descriptors::print);
        file.getMessageTypes().forEach(Descriptors::print);
        file.getEnumTypes().forEach(Descriptors::print);
    }

    private static void print(Descriptor message) {
        for (FieldDescriptor field : message.getFields()) {
            String label = field.isPacked() ? "packed" : field.toProto().getLabel().name().substring(6).toLowerCase();
            String type = field.getType().name().toLowerCase();
            String of = "";
            if (field.getJavaType() == FieldDescriptor.JavaType.MESSAGE) of = " " + field.getMessageType().getName();
            if (field.getJavaType() == FieldDescriptor.JavaType.ENUM) of = " " + field.getEnumType().getName();
            System.out.println("field " + message.getName() + " " + field.getNumber() + " " + label + " " + type + " " + field.getName() + of);
        }
        if (message.getFields().isEmpty()) System.out.println("message " + message.getName());
        message.getNestedTypes().forEach(Descriptors::print);
        message.getEnumTypes().forEach(Descriptors::print);
    }

    private static void print(EnumDescriptor enumeration) {
        for (EnumValueDescriptor value : enumeration.getValues()) {
            System.out.println("value " + enumeration.getName() + " " + value.getNumber() + " " + value.getName());
        }
    }
}
